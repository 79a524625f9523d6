"""Everything that is read of processes and machine, of this very process, and that nothing waits for what hangs."""

from __future__ import annotations

import os
import threading

import pytest
from support.clocks import StoppedClock
from support.procfiles import BlockedSource

from profd.daemon import processes
from profd.daemon.machine import collector as host
from profd.daemon.machine.collector import HostCollector
from profd.daemon.store.records import Identity, PointsTaken, Record

OF_PROCESS = {
    "rss_bytes", "cpu_cores", "cpu_user_cores", "cpu_system_cores", "threads", "open_files", "minor_faults_per_s",
    "major_faults_per_s", "read_bytes_per_s", "write_bytes_per_s", "rss_file_bytes", "rss_shared_bytes", "swap_bytes",
    "main_thread_voluntary_switches_per_s", "main_thread_involuntary_switches_per_s", "pss_bytes", "uss_bytes",
}  # fmt: skip
OF_HOST = {"host_memory_used_bytes", "host_memory_total_bytes", "host_load_1min"}


def me() -> Identity:
    stat = processes.read_stat(os.getpid())
    assert stat is not None
    return Identity(stat.pid, stat.start_ticks)


async def collect(collector: HostCollector, clock: StoppedClock, times: int) -> None:
    for _ in range(times):
        await collector.collect([me()], {me(): frozenset({threading.get_native_id()})}, patience_s=30)
        clock.advance(1)


async def test_this_process_and_its_machine_have_every_counter() -> None:
    clock, put = StoppedClock(), list[Record]()
    collector = HostCollector(clock, put.append)
    await collect(collector, clock, 6)
    points = [point for record in put if isinstance(record, PointsTaken) for point in record.points]
    assert len(put) == sum(isinstance(record, PointsTaken) for record in put), "no event, no error"
    assert {point.name for point in points if point.identity and not point.os_tid} >= OF_PROCESS
    assert {point.os_tid for point in points if point.os_tid} == {threading.get_native_id()}
    assert {point.name for point in points if not point.identity and not point.device} >= OF_HOST
    collector.close()


async def test_counters_of_this_process_are_true() -> None:
    clock, put = StoppedClock(), list[Record]()
    collector = HostCollector(clock, put.append)
    await collect(collector, clock, 1)
    values = {
        point.name: point.value
        for record in put
        if isinstance(record, PointsTaken)
        for point in record.points
        if point.identity == me()
    }
    assert values["threads"] == pytest.approx(len(os.listdir("/proc/self/task")), abs=1)
    assert values["pss_bytes"] <= values["rss_bytes"] * 1.1
    assert values["uss_bytes"] <= values["pss_bytes"]
    collector.close()


async def test_a_kernel_that_does_not_answer_delays_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = BlockedSource()
    monkeypatch.setattr(host, "MemoryMaps", lambda clock: hanging)
    clock, put = StoppedClock(), list[Record]()
    collector = HostCollector(clock, put.append)
    for _ in range(12):
        await collector.collect([me()], {}, patience_s=0.05)
        clock.advance(1)
    names = [point.name for record in put if isinstance(record, PointsTaken) for point in record.points]
    assert names.count("rss_bytes") == 12
    assert "slow" not in names
    events = [record for record in put if not isinstance(record, PointsTaken)]
    assert [getattr(event, "text", "") for event in events] == [
        "memory maps cannot be read: the kernel does not answer"
    ]
    hanging.released.set()
    collector.close()
