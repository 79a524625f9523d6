"""Runs ``known/spinning.py`` in a child of multiprocessing: processes.py KNOWN fork|spawn|forkserver."""

import multiprocessing
import sys

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import spinning

    child = multiprocessing.get_context(sys.argv[2]).Process(target=spinning.main)
    child.start()
    child.join()
