"""Errors that the driver reports by itself: each with its device, once, and in words."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest
from support.clocks import StoppedClock
from support.gpusim import SimulatedDriver
from support.waiting import DEADLINE_S

from profd.daemon.gpu.devices import GpuNames
from profd.daemon.gpu.events import GpuEvents, in_words
from profd.daemon.gpu.nvmlsource import NvmlSource

Told = queue.Queue[tuple[str, str]]


@pytest.fixture
def told(driver: SimulatedDriver) -> Iterator[Told]:
    driver.add_gpu("gpu0")
    driver.add_gpu("gpu1")
    found: Told = queue.Queue()
    clock = StoppedClock()
    source = NvmlSource(clock, GpuNames())
    events = GpuEvents(source, clock, lambda name, text: found.put((name, text)))
    yield found
    events.close(DEADLINE_S)


def test_errors_are_told_in_order_with_their_device_and_none_of_before_the_run(
    driver: SimulatedDriver, told: Told
) -> None:
    driver.wait_for_call("nvmlEventSetWait")
    driver.add("xid", 31, "gpu0", at_s=-1)
    driver.add("double_bit_ecc", 1, "gpu0", at_s=1)
    driver.add("xid", 79, "gpu1", at_s=2)
    driver.set_now(3)
    assert [told.get(timeout=DEADLINE_S) for _ in range(2)] == [
        ("gpu0", "a memory error that ECC could not correct"),
        ("gpu1", "Xid 79: GPU has fallen off the bus"),
    ]


def test_unknown_xid_is_its_number() -> None:
    assert in_words(9999) == "Xid 9999"
