"""Counters of processes, from files in the test's hands."""

from __future__ import annotations

import os

import msgspec
import pytest
from support.clocks import StoppedClock
from support.present import there
from support.procfiles import TARGET, ProcFiles, files_of, read, values
from support.synthetic import identity_of

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.machine.counters import (
    LARGEST_BYTES,
    MOST_THREADS,
    MemoryMaps,
    QuickCounters,
    SlowCounters,
)
from profd.daemon.machine.machine import Watched
from profd.daemon.store.records import Identity, Point

TICKS = processes.CLOCK_TICKS
PAGE = os.sysconf("SC_PAGESIZE")
STATUS = f"/proc/{TARGET.pid}/status"
IO = f"/proc/{TARGET.pid}/io"
THREAD = f"/proc/{TARGET.pid}/task/{{}}".format


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> ProcFiles:
    made = files_of(monkeypatch)
    made.run()
    return made


def test_cpu_is_by_the_time_between_two_readings_and_memory_as_it_is(
    clock: StoppedClock, files: ProcFiles
) -> None:
    source = QuickCounters(clock)
    files.run(user_ticks=100, system_ticks=10, rss_pages=1000)
    for _ in range(2):  # no time goes by
        assert values(read(source, TARGET)) == {"rss_bytes": 1000 * PAGE}
    files.run(user_ticks=100 + 2 * TICKS, system_ticks=10 + TICKS, rss_pages=2000)
    clock.advance(2)
    assert values(read(source, TARGET)) == pytest.approx(
        {"cpu_cores": 1.5, "rss_bytes": 2000 * PAGE}
    )
    for identities in ((), (TARGET,)):  # a reading is left out
        clock.advance(1)
        assert "cpu_cores" not in values(read(source, *identities))


def test_the_last_memory_of_a_process_is_what_it_had_before_its_end(
    clock: StoppedClock, files: ProcFiles
) -> None:
    source = QuickCounters(clock)
    files.run(rss_pages=0)
    assert "rss_bytes" not in values(read(source, TARGET))


def test_the_main_thread_is_read_with_the_process_and_the_others_seldom(
    clock: StoppedClock, files: ProcFiles
) -> None:
    threads = {TARGET: frozenset({TARGET.pid, 11, 12, 13})}
    sources = (QuickCounters(clock), SlowCounters(clock))
    for os_tid in (TARGET.pid, 11, 12):
        files.run(TARGET, os_tid)
    for source in sources:
        read(source, TARGET, threads=threads)
    files.run(TARGET, TARGET.pid, user_ticks=TICKS // 2)
    files.run(TARGET, 11, system_ticks=TICKS // 4)
    clock.advance(1)
    quick, slow = (
        {
            point.os_tid: point.value
            for point in read(source, TARGET, threads=threads)
            if point.os_tid
        }
        for source in sources
    )
    assert quick == {TARGET.pid: 0.5}
    assert slow == {11: 0.25, 12: 0.0}


def test_the_thread_that_leads_is_read_as_the_main_one_and_of_others_when_they_give_way(
    clock: StoppedClock, files: ProcFiles
) -> None:
    source, threads = SlowCounters(clock), {TARGET: frozenset({TARGET.pid, 11, 12})}

    def runs(os_tid: int, times: int) -> None:
        """Let a thread have run so often, half a second each, after as long a wait for a core."""
        ticks = times * TICKS // 2
        files.run(TARGET, os_tid, user_ticks=ticks)
        files.contents[f"{THREAD(os_tid)}/schedstat"] = f"900 {times * SECOND_NS // 2} 7\n"
        files.contents[f"{THREAD(os_tid)}/status"] = f"voluntary_ctxt_switches:\t{50 * times}\n"

    def reading(leader: int) -> dict[tuple[str, int | None], float]:
        clock.advance(5)
        watched = Watched((TARGET,), threads, {TARGET: leader} if leader else {})
        points = source.read(watched)
        return {
            (one.name.removeprefix("main_thread_"), one.os_tid): one.value
            for one in points
            if "main_thread" in one.name or one.os_tid
        }

    for os_tid, times in ((TARGET.pid, 0), (11, 0), (12, 0)):
        runs(os_tid, times)
    reading(leader=11)
    runs(11, 2)
    runs(12, 4)
    reading(leader=11)
    runs(11, 4)
    runs(12, 8)
    own = {"core_wait_share": 0.2, "voluntary_switches_per_s": 20, "involuntary_switches_per_s": 0}
    assert reading(leader=11) == pytest.approx(
        {(name, None): value for name, value in own.items()}
        | {("cpu_cores", TARGET.pid): 0.0}
        | {("cpu_cores", 12): 0.4}
    )
    # Another one that leads has counts of its own.
    assert not any(name == "core_wait_share" for name, _ in reading(leader=0))


@pytest.mark.parametrize("fields", [{"start": 1}, {"state": "Z"}, {"state": "X"}])
def test_a_process_that_is_dead_or_another_one_has_no_values(
    clock: StoppedClock, files: ProcFiles, fields: dict[str, int | str]
) -> None:
    files.run(TARGET, None, **fields)
    gone = Identity(78, 1)
    assert read(QuickCounters(clock), TARGET, gone) == read(SlowCounters(clock), TARGET, gone) == []


def test_slow_ones_are_rates_and_levels(
    clock: StoppedClock, files: ProcFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.contents[IO] = "rchar: 0\nwchar: 0\nsyscr: 1\nread_bytes: 4096\n"
    files.contents["/proc/sys/kernel/task_delayacct"] = "1\n"
    source = SlowCounters(clock)
    files.contents[STATUS] = "Name:\tvoluntary_ctxt_switches: 9\nRssFile:\t 3 kB\n"
    files.run(threads=3)
    assert values(read(source, TARGET)) == {"threads": 3, "rss_file_bytes": 3072}
    files.contents[STATUS] = "RssAnon:\t 9 kB\nRssFile:\t 4 kB\nRssShmem:\t 2 kB\nVmSwap:\t 1 kB\n"
    files.run(
        threads=4, user_ticks=TICKS, system_ticks=2 * TICKS, minor_faults=100, major_faults=20
    )
    files.contents[IO] = "rchar: 5000\nwchar: 1000\nsyscr: 1\nread_bytes: 4096\n"
    clock.advance(5)
    expected = {
        "threads": 4,
        "cpu_user_cores": 0.2,
        "cpu_system_cores": 0.4,
        "minor_faults_per_s": 20,
        "major_faults_per_s": 4,
        "read_bytes_per_s": 1000,
        "write_bytes_per_s": 200,
        "rss_file_bytes": 4096,
        "rss_shared_bytes": 2048,
        "swap_bytes": 1024,
    }
    assert values(read(source, TARGET)) == pytest.approx(expected)
    files.contents[IO] = "rchar: 10\nwchar: 10\n"
    clock.advance(5)
    assert values(read(source, TARGET))["read_bytes_per_s"] == 0, (
        "a total that falls is no negative rate"
    )


def test_open_files_of_this_process_are_counted(clock: StoppedClock) -> None:
    source, me = SlowCounters(clock), identity_of()
    before = values(read(source, me))["open_files"]
    with open(os.devnull), open(os.devnull):  # noqa: PTH123
        assert values(read(source, me))["open_files"] == before + 2


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
def mapped(monkeypatch: pytest.MonkeyPatch) -> ProcFiles:
    made = files_of(monkeypatch)
    for identity in (TARGET, *OTHERS):
        made.run(identity)
        made.contents[f"/proc/{identity.pid}/smaps_rollup"] = ROLLUP
    return made


def read_started(*identities: Identity) -> list[Point]:
    """Return the first readings of processes, which have to be ten seconds old."""
    clock = StoppedClock()
    source = MemoryMaps(clock, Costs())
    assert read(source, *identities) == []
    clock.advance(10)
    return read(source, *identities)


def test_cheap_processes_are_read_twice_in_forty_seconds(mapped: ProcFiles) -> None:
    clock = StoppedClock()
    source, read_at = MemoryMaps(clock, Costs()), []
    for second in range(65):
        points = read(source, TARGET, *OTHERS)
        assert values(points) in ({}, {"pss_bytes": 500 * 1024, "uss_bytes": 350 * 1024})
        read_at += [second for point in points if point.name == "pss_bytes"]
        clock.advance(1)
    assert sorted(read_at) == [10] * 5 + [20] * 5 + [50] * 5 + [60] * 5


def test_a_dear_process_is_read_twice_before_another_is_read_at_all(mapped: ProcFiles) -> None:
    clock, costs = StoppedClock(), Costs()
    costs.reading_ns = 50 * MILLISECOND_NS
    source, order = MemoryMaps(clock, costs), list[Identity | None]()
    for _ in range(500):
        points = read(source, TARGET, *OTHERS)
        order += [point.identity for point in points if point.name == "uss_bytes"]
        clock.advance(1)
    first = OTHERS[0]
    assert order[:5] == [TARGET, first, TARGET, first, OTHERS[1]]


def test_dear_processes_never_cost_more_than_the_budget(mapped: ProcFiles) -> None:
    clock, costs = StoppedClock(), Costs()
    costs.reading_ns = 100 * MILLISECOND_NS
    source, seen = MemoryMaps(clock, costs), set[Identity | None]()
    for _ in range(3000):
        seen |= {point.identity for point in read(source, TARGET, *OTHERS)}
        clock.advance(1)
    assert seen == {TARGET, *OTHERS}, "all take turns"
    assert costs.cpu_ns <= 0.0005 * 3000e9 + 200 * MILLISECOND_NS


def test_an_unreadable_or_replaced_process_is_missing_and_others_are_not(mapped: ProcFiles) -> None:
    del mapped.contents[f"/proc/{TARGET.pid}/smaps_rollup"]
    mapped.run(OTHERS[1], start=2)
    points = read_started(TARGET, *OTHERS[:2])
    assert {point.identity for point in points} == {OTHERS[0]}


def test_a_huge_process_is_not_read_even_once(
    mapped: ProcFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = LARGEST_BYTES // os.sysconf("SC_PAGESIZE")
    mapped.run(OTHERS[0], rss_pages=pages)
    mapped.run(OTHERS[1], rss_pages=pages + 1)
    opened = []

    def note(path: str) -> bytes | None:
        opened.append(path)
        return mapped.read(path)

    monkeypatch.setattr(processes, "read", note)
    points = read_started(*OTHERS[:2])
    assert {point.identity for point in points} == {OTHERS[0]}
    assert f"/proc/{OTHERS[1].pid}/smaps_rollup" not in opened


def test_of_very_many_threads_those_are_read_that_have_computed_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, me, read_stat = StoppedClock(), identity_of(), processes.read_stat
    source = SlowCounters(clock)

    def stat_of(pid: int, os_tid: int | None = None) -> processes.Stat | None:
        stat = there(read_stat(pid))
        return (
            stat
            if os_tid is None
            else msgspec.structs.replace(stat, user_ticks=os_tid, system_ticks=0)
        )

    monkeypatch.setattr(processes, "read_stat", stat_of)
    threads = frozenset(range(10_000_000, 10_000_000 + 2 * MOST_THREADS))
    watched = Watched((me,), {me: threads})
    list(source.read(watched))
    clock.at_ns += SECOND_NS
    known = {point.os_tid for point in source.read(watched)} - {None}
    assert known == set(sorted(threads)[-MOST_THREADS:])
