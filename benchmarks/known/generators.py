"""Draws from a generator that draws from another one."""

import time

CALLS = {
    "main": {"squares", "consume"},
    "squares": {"numbers", "spin"},
    "numbers": {"spin"},
    "consume": {"spin"},
    "spin": set(),
}
SHARES = {"squares": 0.3, "consume": 0.7}


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def numbers():
    while True:
        spin(0.0021)
        yield 1


def squares():
    for number in numbers():
        spin(0.0009)
        yield number * number


def consume(number):
    spin(0.007 * number)


def main():
    for square in squares():
        consume(square)


if __name__ == "__main__":
    print("ready", flush=True)
    main()
