"""Alternates between three functions."""

from time import perf_counter, time_ns

import diary
from dozing import doze

CALLS = {"main": {"first", "second", "third"}, "first": {"doze"}, "second": {"doze"}, "third": {"doze"}, "doze": set()}
PHASES = ("first", "second", "third")


def first():
    doze(perf_counter() + 0.0205)


def second():
    doze(perf_counter() + 0.0123)


def third():
    doze(perf_counter() + 0.0082)


def main(note):
    while True:
        note(time_ns())
        first()
        note(time_ns())
        second()
        note(time_ns())
        third()


if __name__ == "__main__":
    diary.ready()
    main(diary.track())
