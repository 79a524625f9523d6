"""Computes in one function until a line comes on stdin, then in another. Prints "ready" once it has begun."""

import select
import sys
import time


def spin() -> None:
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass


def before_the_line() -> None:
    while not select.select([sys.stdin], [], [], 0)[0]:
        spin()


def after_the_line() -> None:
    while True:
        spin()


print("ready", flush=True)
before_the_line()
sys.stdin.readline()
after_the_line()
