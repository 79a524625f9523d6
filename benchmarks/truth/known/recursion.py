"""Calls itself two hundred times deep, and stays shallow in between."""

from time import perf_counter, time_ns

import diary
from dozing import doze

CALLS = {"main": {"descend", "shallow"}, "descend": {"descend", "doze"}, "shallow": {"doze"}, "doze": set()}
PHASES = ("descend", "shallow")


def descend(depth, end):
    if depth:
        descend(depth - 1, end)
    else:
        doze(end)


def shallow(end):
    doze(end)


def main(note):
    while True:
        note(time_ns())
        descend(200, perf_counter() + 0.0141)
        note(time_ns())
        shallow(perf_counter() + 0.0094)


if __name__ == "__main__":
    diary.ready()
    main(diary.track())
