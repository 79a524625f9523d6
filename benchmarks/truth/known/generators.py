"""Draws from a generator that draws from another one."""

from time import perf_counter, time_ns

import diary
from dozing import doze

CALLS = {
    "main": {"squares", "consume"},
    "squares": {"numbers", "doze"},
    "numbers": {"doze"},
    "consume": {"doze"},
    "doze": set(),
}
PHASES = ("squares", "consume")


def numbers():
    while True:
        doze(perf_counter() + 0.0021)
        yield 1


def squares():
    for number in numbers():
        doze(perf_counter() + 0.0009)
        yield number * number


def consume(number):
    doze(perf_counter() + 0.007 * number)


def main(note):
    note(time_ns())
    for square in squares():
        note(time_ns())
        consume(square)
        note(time_ns())


if __name__ == "__main__":
    diary.ready()
    main(diary.track())
