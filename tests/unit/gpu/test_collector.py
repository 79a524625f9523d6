"""The thread that reads GPUs: what it says of drivers that go and come back, and of calls that do
not return.
"""

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

from profd.daemon.clock import MILLISECOND_NS, Clock
from profd.daemon.gpu import collector
from profd.daemon.gpu.collector import GpuCollector
from profd.daemon.gpu.users import ProcessTraces
from profd.daemon.store.records import DeviceSeen, EventHappened, Identity, PointsTaken, Record

MAIN = Identity(os.getpid(), 1)
NOT_LOADED = 9


class Desk:
    """A collector and what it has handed over."""

    def __init__(self, clock: Clock, **options: bool) -> None:
        self.records: list[Record] = []
        self._news = threading.Condition()
        self.collector = GpuCollector(clock, self._take, **options)
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
def driver(driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch) -> SimulatedDriver:
    """Give the driver two GPUs that the run uses."""
    monkeypatch.setattr(ProcessTraces, "sees_host_pids", lambda traces: True)
    for constant in ("INTERVAL_NS", "RETRY_NS"):
        monkeypatch.setattr(collector, constant, 10 * MILLISECOND_NS)
    for name in ("gpu0", "gpu1"):
        driver.add_gpu(name, memory_used_bytes=1, memory_total_bytes=2, utilization_share=1)
        driver.add("process_memory_bytes", 1, name, MAIN.pid)
    return driver


@pytest.fixture
def desk(driver: SimulatedDriver) -> Iterator[Desk]:
    made = Desk(Clock())
    yield made
    made.collector.close(DEADLINE_S)


def test_gpu_of_others_is_read_on_request_only(driver: SimulatedDriver, desk: Desk) -> None:
    for name in ("gpu0", "gpu1"):
        driver.add("process_memory_bytes", "", name, MAIN.pid)
    desk.collector.start()
    driver.add("process_memory_bytes", 1, "gpu0", MAIN.pid, at_s=1)
    asker = Desk(Clock(), everything=True)
    asker.collector.start()
    asker.wait_for_points()
    asker.collector.close(DEADLINE_S)
    assert desk.records == []


def test_gpu_of_the_run_is_read_and_a_gpu_or_driver_that_goes_and_comes_back_is_two_events(
    driver: SimulatedDriver, desk: Desk
) -> None:
    desk.collector.start()
    desk.wait_for_points()
    assert isinstance(desk.records[0], DeviceSeen)
    assert desk.events() == []
    driver.add("lost", 1, "gpu0")
    desk.wait_for_event("gpu0 does not answer any more: nvml")
    desk.wait_for_points()
    driver.add("lost", "", "gpu0")
    desk.wait_for_event("gpu0 answers again")
    driver.add("driver_error", NOT_LOADED)
    desk.wait_for_event("the NVIDIA driver is gone: driver not loaded")
    driver.add("driver_error", "")
    desk.wait_for_event("the NVIDIA driver answers again")
    desk.wait_for_points()
    assert len(desk.events()) == 4


def test_driver_that_cannot_be_used_is_said_once_with_its_remedy(
    driver: SimulatedDriver, desk: Desk
) -> None:
    driver.add("driver_error", 18)
    desk.collector.start()
    desk.wait_for_event(
        "no GPU counters: the NVIDIA kernel module and its libraries are of different versions"
    )
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


class Blocked(Desk):
    """A desk whose collector stands in a call into the driver until that is let go."""

    def __init__(self, driver: SimulatedDriver, folder: Path, function: str) -> None:
        self._driver, self._gate, self._function = driver, folder / "gate", f"{function}_v2"
        os.mkfifo(self._gate)
        driver.add("block", self._gate, key=self._function)
        self.clock = StoppedClock()
        super().__init__(self.clock)
        self.collector.start()
        driver.wait_for_call(function)

    def events_after(self, seconds: float) -> list[str]:
        """Let time go by, and return what was said by then."""
        self.clock.advance(seconds)
        self.collector.check()
        return self.events()

    def let_go(self) -> None:
        self._driver.add("block", "", key=self._function)
        self._gate.open("wb").close()


def test_call_that_does_not_return_is_said_once_and_so_is_its_end(
    driver: SimulatedDriver, tmp_path: Path
) -> None:
    desk = Blocked(driver, tmp_path, "nvmlDeviceGetMemoryInfo")
    assert desk.events_after(3) == []
    said = [desk.events_after(1) for _ in range(3)]
    assert (
        said
        == [
            [
                "NVML does not answer (nvmlDeviceGetMemoryInfo): until it does there are no GPU "
                "counters"
            ]
        ]
        * 3
    )
    desk.clock.advance(4)
    desk.let_go()
    desk.wait_for_points()
    ended = [text for text in desk.events_after(0)[1:] if text.startswith("NVML")]
    assert ended == ["NVML answers again; nvmlDeviceGetMemoryInfo took 10 s"]
    desk.collector.close(DEADLINE_S)


def test_a_driver_that_wakes_its_gpus_may_take_half_a_minute(
    driver: SimulatedDriver, tmp_path: Path
) -> None:
    desk = Blocked(driver, tmp_path, "nvmlDeviceGetHandleByIndex")
    assert desk.events_after(30) == []
    (said,) = desk.events_after(1)
    assert said.startswith("NVML does not answer (nvmlDeviceGetHandleByIndex):")
    desk.let_go()
    desk.collector.close(DEADLINE_S)


def test_closing_does_not_wait_for_a_call_that_does_not_return(
    driver: SimulatedDriver, tmp_path: Path
) -> None:
    desk = Blocked(driver, tmp_path, "nvmlDeviceGetMemoryInfo")
    desk.collector.close(0.05)  # it returns, though the call does not
    desk.let_go()
    desk.collector.join(DEADLINE_S)
    assert desk.records == []
