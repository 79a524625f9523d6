"""Counts for ever into a file, one number a line, and would notice a step lost. Usage: counting.py FILE."""

import sys
import time


def count(path: str) -> None:
    with open(path, "w", buffering=1) as file:  # noqa: PTH123
        number = 0
        while True:
            number += 1
            file.write(f"{number}\n")
            if number == 1:
                print("ready", flush=True)
            spin()


def spin() -> None:
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        pass


count(sys.argv[1])
