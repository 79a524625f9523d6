"""Calls itself two hundred times deep, and stays shallow in between."""

import time

CALLS = {"main": {"descend", "shallow"}, "descend": {"descend", "spin"}, "shallow": {"spin"}, "spin": set()}
SHARES = {"descend": 0.6, "shallow": 0.4}


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def descend(depth, end):
    if depth:
        descend(depth - 1, end)
    else:
        spin(end - time.perf_counter())


def shallow(seconds):
    spin(seconds)


def main():
    while True:
        descend(200, time.perf_counter() + 0.0141)
        shallow(0.0094)


if __name__ == "__main__":
    print("ready", flush=True)
    main()
