"""Starts three threads past the module ``threading``, then runs ``known/spinning.py``: outside.py KNOWN."""

import _thread
import sys
import time

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import spinning

    for _ in range(3):
        _thread.start_new_thread(time.sleep, (600,))
    spinning.main()
