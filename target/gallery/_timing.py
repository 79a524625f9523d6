"""How fast this machine is, so that a planted bottleneck has about the same share of a step on every one."""

import statistics
import time


def work_s(do, times=20):
    """Return the CPU time that something usually takes: what else the machine does is not in it."""
    return statistics.median(_taken_s(do) for _ in range(times))


def _taken_s(do):
    started = time.process_time()
    do()
    return time.process_time() - started
