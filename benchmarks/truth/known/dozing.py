"""Spending time: asleep but for the last moment, so that stacks change in a program that runs.

That moment is short and the same for all: on a machine short of cores a sampler comes when the program sleeps, so that
a phase which is awake for longer than others would be seen too seldom.
"""

import time

AWAKE_S = 0.0002


def doze(end):
    """Return at a time of ``perf_counter``, or at once where it is over."""
    left = end - time.perf_counter() - AWAKE_S
    if left > 0:
        time.sleep(left)
    while time.perf_counter() < end:
        pass
