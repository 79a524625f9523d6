"""Everything that is read of processes and machine, of this very process, and that nothing waits
for what hangs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from support.clocks import StoppedClock
from support.present import there
from support.procfiles import TARGET, BlockedSource
from support.synthetic import identity_of

from profd.daemon.machine import collector as host
from profd.daemon.machine.collector import HostCollector, PollThread
from profd.daemon.machine.machine import Watched
from profd.daemon.store.records import EventHappened, Point, PointsTaken, Record

OF_PROCESS = {
    "rss_bytes", "cpu_cores", "cpu_user_cores", "cpu_system_cores", "threads", "open_files", "minor_faults_per_s",
    "major_faults_per_s", "read_bytes_per_s", "write_bytes_per_s", "rss_file_bytes", "rss_shared_bytes", "swap_bytes",
    "main_thread_voluntary_switches_per_s", "main_thread_involuntary_switches_per_s", "pss_bytes", "uss_bytes",
}  # fmt: skip
OF_HOST = {"host_memory_used_bytes", "host_memory_total_bytes", "host_load_1min"}


async def collect(collector: HostCollector, clock: StoppedClock, times: int) -> None:
    for _ in range(times):
        await collector.collect(
            [identity_of()], {identity_of(): frozenset({threading.get_native_id()})}, patience_s=30
        )
        clock.advance(1)


async def test_this_process_and_its_machine_have_every_counter() -> None:
    clock, put = StoppedClock(), list[Record]()
    collector = HostCollector(clock, put.append)
    await collect(collector, clock, 11)
    points = [point for record in put if isinstance(record, PointsTaken) for point in record.points]
    assert len(put) == sum(isinstance(record, PointsTaken) for record in put), "no event, no error"
    of_process = {
        point.name: point.value for point in points if point.identity and not point.os_tid
    }
    assert of_process.keys() >= OF_PROCESS
    assert of_process["threads"] == pytest.approx(len(os.listdir("/proc/self/task")), abs=1)
    assert of_process["uss_bytes"] <= of_process["pss_bytes"] <= of_process["rss_bytes"] * 1.1
    assert {point.os_tid for point in points if point.os_tid} == {threading.get_native_id()}
    assert {point.name for point in points if not point.identity and not point.device} >= OF_HOST
    collector.close()


async def test_a_kernel_that_does_not_answer_delays_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hanging = BlockedSource()
    monkeypatch.setattr(host, "MemoryMaps", lambda clock: hanging)
    clock, put = StoppedClock(), list[Record]()
    collector = HostCollector(clock, put.append)
    for _ in range(12):
        await collector.collect([identity_of()], {}, patience_s=0.05)
        clock.advance(1)
    names = [
        point.name for record in put if isinstance(record, PointsTaken) for point in record.points
    ]
    assert names.count("rss_bytes") == 12
    assert "slow" not in names
    events = [record for record in put if not isinstance(record, PointsTaken)]
    assert [getattr(event, "text", "") for event in events] == [
        "memory maps cannot be read: the kernel does not answer"
    ]
    hanging.released.set()
    collector.close()


class Counting:
    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.watched: list[Watched] = []

    def read(self, watched: Watched) -> Iterator[Point]:
        self.watched.append(watched)
        yield Point("count", len(self.watched))


class Failing:
    interval_s = 1.0

    def read(self, watched: Watched) -> Iterator[Point]:
        yield Point("lost", 1.0)
        raise ValueError("a field that is no number")


def ask(thread: PollThread, watched: Watched | None = None) -> None:
    if done := thread.ask(watched or Watched()):
        done.result(30)


def test_each_source_is_read_at_its_own_pace() -> None:
    clock, put = StoppedClock(), list[Record]()
    quick, slow = Counting(1), Counting(5)
    thread = PollThread("x", [quick, slow], clock, put.append)
    for _ in range(11):
        ask(thread, Watched((TARGET,)))
        clock.advance(0.99)
    assert put[:2] == [PointsTaken(StoppedClock().at_ns, (Point("count", 1.0),))] * 2
    assert (len(quick.watched), len(slow.watched)) == (11, 3)
    assert quick.watched[0].identities == (TARGET,)
    thread.close()


def test_everything_is_read_before_it_is_due_where_that_is_asked() -> None:
    clock, put, slow = StoppedClock(), list[Record](), Counting(60)
    thread = PollThread("x", [slow], clock, put.append)
    ask(thread)
    assert thread.ask(Watched()) is None
    there(thread.ask(Watched(), everything=True)).result(30)
    assert len(slow.watched) == 2
    thread.close()


def test_nothing_is_asked_of_a_lane_that_hangs_and_it_is_said_once() -> None:
    clock, put, source = StoppedClock(), list[Record](), BlockedSource()
    thread = PollThread("memory maps", [source], clock, put.append)
    hanging = there(thread.ask(Watched()))
    assert source.entered.wait(30)
    clock.advance(9)
    assert thread.ask(Watched()) is None
    assert put == []
    for _ in range(3):
        clock.advance(1)
        assert thread.ask(Watched()) is None
    assert [record.text for record in put if isinstance(record, EventHappened)] == [
        "memory maps cannot be read: the kernel does not answer"
    ]
    source.released.set()
    hanging.result(30)
    clock.advance(1)
    ask(thread)
    assert [type(record) for record in put] == [EventHappened, PointsTaken, PointsTaken]
    thread.close()


def test_a_source_that_fails_is_dropped_and_said_and_the_others_go_on() -> None:
    clock, put = StoppedClock(), list[Record]()
    thread = PollThread("x", [Failing(), Counting(1)], clock, put.append)
    for _ in range(2):
        ask(thread)
        clock.advance(1)
    events = [record for record in put if isinstance(record, EventHappened)]
    assert [(event.kind, event.text) for event in events] == [
        ("error", "Failing is no longer read: ValueError('a field that is no number')")
    ]
    assert [record.points[0].name for record in put if isinstance(record, PointsTaken)] == [
        "count",
        "count",
    ]
    thread.close()
