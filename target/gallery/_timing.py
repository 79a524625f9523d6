"""How fast this machine is, so that a planted bottleneck has about the same share of a step on every one."""

import statistics
import time


def work_s(do, times=20):
    """Return the CPU time that something usually takes: what else the machine does is not in it."""
    return statistics.median(_taken_s(do, time.process_time) for _ in range(times))


def wait_s(do, times=20):
    """Return for how long one usually waits for something, whatever else the machine does."""
    return statistics.median(_taken_s(do, time.perf_counter) for _ in range(times))


def _taken_s(do, now_s):
    started = now_s()
    do()
    return now_s() - started
