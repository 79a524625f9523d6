"""Alternates between three functions."""

import time

CALLS = {"main": {"first", "second", "third"}, "first": {"spin"}, "second": {"spin"}, "third": {"spin"}, "spin": set()}
SHARES = {"first": 0.5, "second": 0.3, "third": 0.2}


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def first():
    spin(0.0205)


def second():
    spin(0.0123)


def third():
    spin(0.0082)


def main():
    while True:
        first()
        second()
        third()


if __name__ == "__main__":
    print("ready", flush=True)
    main()
