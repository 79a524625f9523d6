"""Proportional memory: what it costs, and who is read when."""

from __future__ import annotations

import os

import pytest
from support.clocks import StoppedClock
from support.procfiles import TARGET, ProcFiles, files_of, read, values

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.machine.machine import Watched
from profd.daemon.machine.processes import LARGEST_BYTES, MemoryMaps
from profd.daemon.store.records import Identity

OTHERS = tuple(Identity(100 + n, 1) for n in range(4))
ROLLUP = (
    "5600-7fff ---p 00000000 00:00 0 [rollup]\nRss: 900 kB\nPss:   500 kB\nPss_Dirty: 9 kB\n"
    "Private_Clean: 100 kB\nPrivate_Dirty: 200 kB\nPrivate_Hugetlb: 50 kB\n"
)


class Costs:
    """The CPU time of the thread that reads: each reading takes as much as it is set to."""

    def __init__(self) -> None:
        self.cpu_ns = 0
        self.reading_ns = MILLISECOND_NS
        self._calls = 0

    def __call__(self) -> int:
        self._calls += 1
        if self._calls % 2 == 0:
            self.cpu_ns += self.reading_ns
        return self.cpu_ns


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> ProcFiles:
    made = files_of(monkeypatch)
    for identity in (TARGET, *OTHERS):
        made.run(identity)
        made.contents[f"/proc/{identity.pid}/smaps_rollup"] = ROLLUP
    return made


def test_proportional_and_unique_memory(files: ProcFiles) -> None:
    found = values(read(MemoryMaps(StoppedClock(), Costs()), TARGET))
    assert found == {"pss_bytes": 500 * 1024, "uss_bytes": 350 * 1024}


def test_cheap_processes_are_read_every_ten_seconds(files: ProcFiles) -> None:
    clock = StoppedClock()
    source, read_at = MemoryMaps(clock, Costs()), []
    for second in range(25):
        read_at += [second for point in read(source, TARGET, *OTHERS) if point.name == "pss_bytes"]
        clock.advance(1)
    assert sorted(read_at) == [0] * 5 + [10] * 5 + [20] * 5


def test_dear_processes_never_cost_more_than_the_budget(files: ProcFiles) -> None:
    clock, costs = StoppedClock(), Costs()
    costs.reading_ns = 100 * MILLISECOND_NS
    source, seen = MemoryMaps(clock, costs), set[Identity | None]()
    for _ in range(1200):
        seen |= {point.identity for point in read(source, TARGET, *OTHERS)}
        clock.advance(1)
    assert seen == {TARGET, *OTHERS}, "all take turns"
    assert costs.cpu_ns <= 0.0005 * 1200e9 + 120 * MILLISECOND_NS


def test_who_may_not_be_read_is_missing_and_the_others_are_there(files: ProcFiles) -> None:
    del files.contents[f"/proc/{TARGET.pid}/smaps_rollup"]
    points = read(MemoryMaps(StoppedClock(), Costs()), TARGET, OTHERS[0])
    assert {point.identity for point in points} == {OTHERS[0]}


def test_another_process_under_the_pid_is_not_read(files: ProcFiles) -> None:
    files.run(TARGET, start=1)
    assert list(MemoryMaps(StoppedClock(), Costs()).read(Watched((TARGET,)))) == []


def test_a_huge_process_is_not_read_even_once(files: ProcFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = LARGEST_BYTES // os.sysconf("SC_PAGESIZE")
    files.run(OTHERS[0], rss_pages=pages)
    files.run(OTHERS[1], rss_pages=pages + 1)
    opened = []

    def note(path: str) -> bytes | None:
        opened.append(path)
        return files.read(path)

    monkeypatch.setattr(processes, "read", note)
    points = read(MemoryMaps(StoppedClock(), Costs()), *OTHERS[:2])
    assert {point.identity for point in points} == {OTHERS[0]}
    assert f"/proc/{OTHERS[1].pid}/smaps_rollup" not in opened
