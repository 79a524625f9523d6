"""Counts for ever into a file, one number a line, with children that do nothing until they end with it.

Usage: counting.py FILE [CHILDREN]. A line on stdin has every child become ``sleep``.
"""

from __future__ import annotations

import os
import sys
import threading
import time


def stand(pipe: int) -> None:
    """Wait, as a child, for a byte or the end of the parent; at a byte become another program."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # a reader of the parent's output sees its end
    if os.read(pipe, 1):
        os.execv("/bin/sleep", ["sleep", "30"])
    os._exit(0)


def tell_children(pipe: int, count: int) -> None:
    sys.stdin.readline()
    os.write(pipe, b"x" * count)


def main(path: str, children: int = 0) -> None:
    reading, writing = os.pipe()
    for _ in range(children):
        if os.fork() == 0:
            os.close(writing)
            stand(reading)
    threading.Thread(target=tell_children, args=(writing, children), daemon=True).start()
    print("ready", flush=True)
    with open(path, "w") as file:  # noqa: PTH123
        number = 0
        while True:
            number += 1
            print(number, file=file, flush=True)
            time.sleep(0.01)


main(sys.argv[1], *map(int, sys.argv[2:]))
