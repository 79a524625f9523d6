"""Alternates between three functions for ever and keeps a diary of when it was in which.

Usage: known_phases.py DIARY. Prints "ready" once it has begun. A line of the diary is ``function enter_ns leave_ns``.
"""

import sys
import time

DIARY = open(sys.argv[1], "w", buffering=1)  # noqa: SIM115, PTH123


def busy_half() -> None:
    end = time.monotonic() + 0.100
    while time.monotonic() < end:
        pass


def asleep_third() -> None:
    time.sleep(0.060)


def busy_rest() -> None:
    end = time.monotonic() + 0.040
    while time.monotonic() < end:
        pass


def main() -> None:
    print("ready", flush=True)
    while True:
        for phase in (busy_half, asleep_third, busy_rest):
            enter_ns = time.time_ns()
            phase()
            DIARY.write(f"{phase.__name__} {enter_ns} {time.time_ns()}\n")


main()
