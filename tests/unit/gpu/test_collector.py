"""The thread that reads GPUs: what it says of drivers that go and come back, and of calls that do not return."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest
from support.clocks import StoppedClock
from support.gpusim import SimulatedDriver
from support.waiting import DEADLINE_S

from profd.daemon.clock import Clock
from profd.daemon.gpu.collector import GpuCollector
from profd.daemon.gpu.processes import ProcessTraces
from profd.daemon.store.records import DeviceSeen, EventHappened, Identity, PointsTaken, Record

MAIN = Identity(os.getpid(), 1)
NOT_LOADED = 9


class Desk:
    """A collector and what it has handed over."""

    def __init__(self, clock: Clock, **options: bool) -> None:
        self.records: list[Record] = []
        self._news = threading.Condition()
        self.collector = GpuCollector(clock, self._take, interval_s=0.01, retry_s=0.01, **options)
        self.collector.take([MAIN])

    def _take(self, record: Record) -> None:
        with self._news:
            self.records.append(record)
            self._news.notify_all()

    def wait_for(self, is_there: Callable[[], object]) -> None:
        with self._news:
            assert self._news.wait_for(is_there, DEADLINE_S), self.events()

    def wait_for_event(self, start: str) -> None:
        self.wait_for(lambda: any(text.startswith(start) for text in self.events()))

    def wait_for_points(self) -> None:
        """Wait for points that are read from now on."""
        before = self.points()
        self.wait_for(lambda: self.points() > before)

    def events(self) -> list[str]:
        return [record.text for record in self.records if isinstance(record, EventHappened)]

    def points(self) -> int:
        return sum(isinstance(record, PointsTaken) for record in self.records)


@pytest.fixture
def desk(driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(ProcessTraces, "sees_host_pids", lambda traces: True)
    driver.add_gpu(memory_used_bytes=1, memory_total_bytes=2, utilization_share=1)
    driver.add("process_memory_bytes", 1, "gpu0", MAIN.pid)
    made = Desk(Clock())
    yield made
    made.collector.close(DEADLINE_S)


def test_gpu_of_others_is_read_on_request_only(driver: SimulatedDriver, desk: Desk) -> None:
    driver.add("process_memory_bytes", "", "gpu0", MAIN.pid)
    desk.collector.start()
    driver.add("process_memory_bytes", 1, "gpu0", MAIN.pid, at_s=1)
    asker = Desk(Clock(), everything=True)
    asker.collector.start()
    asker.wait_for_points()
    asker.collector.close(DEADLINE_S)
    assert desk.records == []


def test_gpu_of_the_run_is_read_and_a_driver_that_goes_and_comes_back_is_two_events(
    driver: SimulatedDriver, desk: Desk
) -> None:
    desk.collector.start()
    desk.wait_for_points()
    assert isinstance(desk.records[0], DeviceSeen)
    assert desk.events() == []
    driver.add("driver_error", NOT_LOADED)
    desk.wait_for_event("the NVIDIA driver is gone: driver not loaded")
    driver.add("driver_error", "")
    desk.wait_for_event("the NVIDIA driver answers again")
    desk.wait_for_points()
    assert len(desk.events()) == 2


def test_gpu_that_is_lost_and_found_is_two_events(driver: SimulatedDriver, desk: Desk) -> None:
    driver.add_gpu("gpu1", memory_used_bytes=1, memory_total_bytes=2, utilization_share=1)
    driver.add("process_memory_bytes", 1, "gpu1", MAIN.pid)
    desk.collector.start()
    desk.wait_for_points()
    driver.add("lost", 1, "gpu0")
    desk.wait_for_event("gpu0 does not answer any more: nvml")
    desk.wait_for_points()
    driver.add("lost", "", "gpu0")
    desk.wait_for_event("gpu0 answers again")
    assert len(desk.events()) == 2


def test_driver_that_cannot_be_used_is_said_once_with_its_remedy(driver: SimulatedDriver, desk: Desk) -> None:
    driver.add("driver_error", 18)
    desk.collector.start()
    desk.wait_for_event("no GPU counters: the NVIDIA kernel module and its libraries are of different versions")
    driver.add("driver_error", "")
    desk.wait_for_points()
    assert len(desk.events()) == 2


def test_machine_without_nvidia_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    monkeypatch.setattr("profd.daemon.gpu.nvml.has_driver", lambda: False)
    monkeypatch.setattr("profd.daemon.gpu.nvml.has_gpu", lambda: False)
    desk = Desk(Clock())
    desk.collector.start()
    desk.collector.join(DEADLINE_S)
    assert desk.records == []


@pytest.fixture
def blocked(driver: SimulatedDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Desk, Path]]:
    """Yield a desk whose collector stands in a call into the driver until the FIFO is opened."""
    monkeypatch.setattr(ProcessTraces, "sees_host_pids", lambda traces: True)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    driver.add_gpu(memory_used_bytes=1, memory_total_bytes=2, utilization_share=1)
    driver.add("process_memory_bytes", 1, "gpu0", MAIN.pid)
    driver.add("block", gate, key="nvmlDeviceGetMemoryInfo_v2")
    made = Desk(StoppedClock())
    made.collector.start()
    driver.wait_for_call("nvmlDeviceGetMemoryInfo")
    yield made, gate
    made.collector.close(DEADLINE_S)


def test_call_that_does_not_return_is_said_once_and_so_is_its_end(
    driver: SimulatedDriver, blocked: tuple[Desk, Path]
) -> None:
    desk, gate = blocked
    clock = desk.collector.clock
    assert isinstance(clock, StoppedClock)
    clock.advance(3)
    desk.collector.check()
    assert desk.events() == []
    for _ in range(3):
        clock.advance(1)
        desk.collector.check()
    assert desk.events() == ["NVML does not answer (nvmlDeviceGetMemoryInfo): until it does there are no GPU counters"]
    clock.advance(4)
    driver.add("block", "", key="nvmlDeviceGetMemoryInfo_v2")
    gate.open("wb").close()
    desk.wait_for_points()
    desk.collector.check()
    assert [text for text in desk.events()[1:] if text.startswith("NVML")] == [
        "NVML answers again; nvmlDeviceGetMemoryInfo took 10 s"
    ]


def test_a_driver_that_wakes_its_gpus_may_take_half_a_minute(driver: SimulatedDriver, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    driver.add_gpu(utilization_share=1)
    driver.add("block", gate, key="nvmlDeviceGetHandleByIndex_v2")
    clock = StoppedClock()
    desk = Desk(clock)
    desk.collector.start()
    driver.wait_for_call("nvmlDeviceGetHandleByIndex")
    clock.advance(30)
    desk.collector.check()
    assert desk.events() == []
    clock.advance(1)
    desk.collector.check()
    assert [text.partition(":")[0] for text in desk.events()] == ["NVML does not answer (nvmlDeviceGetHandleByIndex)"]
    driver.add("block", "", key="nvmlDeviceGetHandleByIndex_v2")
    gate.open("wb").close()
    desk.collector.close(DEADLINE_S)


def test_closing_does_not_wait_for_a_call_that_does_not_return(
    driver: SimulatedDriver, blocked: tuple[Desk, Path]
) -> None:
    desk, gate = blocked
    desk.collector.close(0.05)  # it returns, though the gate is closed
    driver.add("block", "", key="nvmlDeviceGetMemoryInfo_v2")
    gate.open("wb").close()
    desk.collector.join(DEADLINE_S)
    assert desk.records == []
