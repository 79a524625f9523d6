"""Spending time: asleep, and awake for the last millisecond, so that stacks change in a program that runs."""

import time


def doze(end):
    """Return at a time of ``perf_counter``, or at once where it is over."""
    left = end - time.perf_counter() - 0.001
    if left > 0:
        time.sleep(left)
    while time.perf_counter() < end:
        pass
