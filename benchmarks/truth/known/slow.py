"""Alternates between three functions that last for many samples each."""

from time import perf_counter, time_ns

import diary
from dozing import doze

CALLS = {"main": {"load", "train", "save"}, "load": {"doze"}, "train": {"doze"}, "save": {"doze"}, "doze": set()}
PHASES = ("load", "train", "save")


def load():
    doze(perf_counter() + 0.303)


def train():
    doze(perf_counter() + 0.505)


def save():
    doze(perf_counter() + 0.202)


def main(note):
    while True:
        note(time_ns())
        load()
        note(time_ns())
        train()
        note(time_ns())
        save()


if __name__ == "__main__":
    diary.ready()
    main(diary.track())
