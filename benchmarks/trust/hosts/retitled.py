"""Changes its title and its threads' names, then runs ``known/spinning.py``: retitled.py KNOWN."""

import sys

import setproctitle

if __name__ == "__main__":
    known = sys.argv[1]
    setproctitle.setproctitle("trainer: epoch 3 of 90")
    setproctitle.setthreadtitle("trainer")
    sys.path.insert(0, known)
    import spinning

    spinning.main()
