"""Counters of this very process, with a clock that a test moves."""

from __future__ import annotations

import os
import threading

import msgspec
import pytest
from clocks import StoppedClock

from profd.daemon import processes
from profd.daemon.collect.host import HostCollector
from profd.daemon.processes import Stat
from profd.daemon.store.records import Identity, PointsTaken

PER_PROCESS = {"rss_bytes", "threads", "cpu_cores", "read_bytes_per_s", "write_bytes_per_s"}


class FakeProcess:
    """A process with counters that a test sets."""

    def __init__(self, stat: Stat) -> None:
        self.identity = Identity(stat.pid, stat.start_ticks)
        self.stat: Stat | None = stat
        self.thread_ticks: dict[int, int] = {}
        self.io_bytes: tuple[int, int] | None = (0, 0)
        self.rss_bytes: int | None = 1 << 20

    def read_stat(self, pid: int, os_tid: int | None = None) -> Stat | None:
        if os_tid is None or self.stat is None:
            return self.stat
        ticks = self.thread_ticks.get(os_tid)
        return None if ticks is None else msgspec.structs.replace(self.stat, cpu_ticks=ticks)

    def work(self, seconds: float) -> None:
        assert self.stat is not None
        ticks = self.stat.cpu_ticks + int(seconds * processes.CLOCK_TICKS)
        self.stat = msgspec.structs.replace(self.stat, cpu_ticks=ticks)


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeProcess:
    stat = processes.read_stat(os.getpid())
    assert stat is not None
    made = FakeProcess(stat)
    monkeypatch.setattr(processes, "read_stat", made.read_stat)
    monkeypatch.setattr(processes, "io_bytes", lambda pid: made.io_bytes)
    monkeypatch.setattr(processes, "rss_bytes", lambda pid: made.rss_bytes)
    return made


def of_process(points: PointsTaken) -> dict[str, float]:
    return {point.name: point.value for point in points.points if point.identity and point.os_tid is None}


def of_threads(points: PointsTaken) -> dict[int, float]:
    return {point.os_tid: point.value for point in points.points if point.os_tid is not None}


def of_host(points: PointsTaken) -> dict[str, float]:
    return {point.name: point.value for point in points.points if point.identity is None}


def test_host_has_no_cpu_share_before_there_was_time_for_one(clock: StoppedClock) -> None:
    collector = HostCollector(clock)
    first, second = of_host(collector.collect([], {})), of_host(collector.collect([], {}))
    assert second.keys() - first.keys() == {"host_cpu_share"}
    assert 0 <= second["host_cpu_share"] <= 1
    assert 0 < second["host_memory_used_bytes"] <= second["host_memory_total_bytes"]
    assert second["host_load_1min"] >= 0


def test_points_are_stamped_by_the_run_clock(clock: StoppedClock) -> None:
    assert HostCollector(clock).collect([], {}).at_ns == clock.at_ns


def test_this_process_has_every_counter(clock: StoppedClock) -> None:
    stat = processes.read_stat(os.getpid())
    assert stat is not None
    me = Identity(stat.pid, stat.start_ticks)
    tid = threading.get_native_id()
    collector = HostCollector(clock)
    assert of_process(collector.collect([me], {me: frozenset({tid})})).keys() == {"rss_bytes", "threads"}
    clock.advance(1)
    points = collector.collect([me], {me: frozenset({tid})})
    assert of_process(points).keys() == PER_PROCESS
    assert of_process(points)["threads"] == len(os.listdir("/proc/self/task"))
    assert of_threads(points).keys() == {tid}


def test_rates_are_by_the_time_between_two_readings(clock: StoppedClock, fake: FakeProcess) -> None:
    collector = HostCollector(clock)
    collector.collect([fake.identity], {})
    fake.work(3.0)
    fake.io_bytes = (4000, 1000)
    clock.advance(2)
    values = of_process(collector.collect([fake.identity], {}))
    assert values["cpu_cores"] == pytest.approx(1.5)
    assert (values["read_bytes_per_s"], values["write_bytes_per_s"]) == (2000, 500)
    clock.advance(2)
    assert of_process(collector.collect([fake.identity], {}))["cpu_cores"] == 0


def test_threads_have_rates_of_their_own(clock: StoppedClock, fake: FakeProcess) -> None:
    threads = {fake.identity: frozenset({11, 12})}
    fake.thread_ticks = {11: 0, 12: 0}
    collector = HostCollector(clock)
    collector.collect([fake.identity], threads)
    fake.thread_ticks[11] = processes.CLOCK_TICKS // 2
    clock.advance(1)
    assert of_threads(collector.collect([fake.identity], threads)) == {11: 0.5, 12: 0.0}


def test_a_thread_that_is_gone_has_no_point_and_its_id_no_past(clock: StoppedClock, fake: FakeProcess) -> None:
    threads = {fake.identity: frozenset({11})}
    fake.thread_ticks = {11: 500}
    collector = HostCollector(clock)
    collector.collect([fake.identity], threads)
    for ticks in ({}, {11: 0}):
        fake.thread_ticks = dict(ticks)
        clock.advance(1)
        assert of_threads(collector.collect([fake.identity], threads)) == {}


def test_two_readings_at_one_time_make_no_rate(clock: StoppedClock, fake: FakeProcess) -> None:
    collector = HostCollector(clock)
    collector.collect([fake.identity], {})
    fake.work(1)
    assert "cpu_cores" not in of_process(collector.collect([fake.identity], {}))


def test_a_total_that_falls_is_no_negative_rate(clock: StoppedClock, fake: FakeProcess) -> None:
    collector = HostCollector(clock)
    fake.io_bytes = (1000, 1000)
    collector.collect([fake.identity], {})
    fake.io_bytes = (10, 10)
    clock.advance(1)
    assert of_process(collector.collect([fake.identity], {}))["read_bytes_per_s"] == 0


def test_what_may_not_be_read_is_missing_and_the_rest_is_there(clock: StoppedClock, fake: FakeProcess) -> None:
    collector = HostCollector(clock)
    fake.io_bytes = fake.rss_bytes = None
    fake.thread_ticks = {11: 0}
    threads = {fake.identity: frozenset({11})}
    collector.collect([fake.identity], threads)
    clock.advance(1)
    points = collector.collect([fake.identity], threads)
    assert of_process(points).keys() == {"threads", "cpu_cores"}
    assert of_threads(points).keys() == {11}


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"state": "Z"}])
def test_another_process_under_the_pid_and_a_zombie_have_no_points(
    clock: StoppedClock, fake: FakeProcess, change: dict[str, int | str]
) -> None:
    assert fake.stat is not None
    fake.stat = msgspec.structs.replace(fake.stat, **change)
    assert of_process(HostCollector(clock).collect([fake.identity], {})) == {}


def test_a_process_that_is_gone_has_no_points(clock: StoppedClock) -> None:
    assert of_process(HostCollector(clock).collect([Identity(2**22 + 1, 5)], {})) == {}
