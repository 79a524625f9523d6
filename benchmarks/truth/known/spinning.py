"""Spends half of the time in one function, three tenths in a second and a fifth in a third, whatever runs beside it.

Needs nothing but Python 3.8, so that it can run in any environment; prints "ready" and the pid once it has begun.
"""

import os
import time

ROUND_S = 0.3
SHARES = {"spin_half": 0.5, "spin_third": 0.3, "spin_fifth": 0.2}


def spin_until(end):
    # Mostly asleep: beside one that never is, a sampler on a busy machine comes when its turn is over.
    while time.perf_counter() < end:
        time.sleep(0.002)


def spin_half():
    spin_until(time.perf_counter() + ROUND_S * 0.5)


def spin_third():
    spin_until(time.perf_counter() + ROUND_S * 0.3)


def spin_fifth():
    spin_until(time.perf_counter() + ROUND_S * 0.2)


def main(seconds=600.0):
    end = time.perf_counter() + seconds
    os.write(1, b"ready %d\n" % os.getpid())  # at once: ranks share the pipe
    while time.perf_counter() < end:
        spin_half()
        spin_third()
        spin_fifth()


if __name__ == "__main__":
    main()
