"""Errors that the driver reports by itself: each with its device, once, and in words."""

from __future__ import annotations

import queue

from support.clocks import StoppedClock
from support.gpusim import SimulatedDriver
from support.waiting import DEADLINE_S

from profd.daemon.gpu.devices import GpuNames
from profd.daemon.gpu.events import GpuEvents, in_words
from profd.daemon.gpu.nvmlsource import NvmlSource


def test_errors_are_reported_in_order_with_device_and_none_before_the_run(
    driver: SimulatedDriver,
) -> None:
    driver.add_gpu("gpu0")
    driver.add_gpu("gpu1")
    reported, clock = queue.Queue[tuple[str, str]](), StoppedClock()
    events = GpuEvents(
        NvmlSource(clock, GpuNames()), clock, lambda name, text: reported.put((name, text))
    )
    driver.wait_for_call("nvmlEventSetWait")
    driver.add("xid", 31, "gpu0", at_s=-1)
    driver.add("double_bit_ecc", 1, "gpu0", at_s=1)
    driver.add("xid", 79, "gpu1", at_s=2)
    driver.set_now(3)
    assert [reported.get(timeout=DEADLINE_S) for _ in range(2)] == [
        ("gpu0", "a memory error that ECC could not correct"),
        ("gpu1", "Xid 79: GPU has fallen off the bus"),
    ]
    events.close(DEADLINE_S)
    assert in_words(9999) == "Xid 9999"  # which nobody knows
