"""The ids of a run file: one for each thing, for as long as the run is, and few of them held in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.synthetic import MAIN, STARTED_NS, run_started
from support.training_stacks import describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store import tables as tables_module
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    Frame,
    Identity,
    Interval,
    Point,
    PointsTaken,
    ProcessEnded,
    ProcessSeen,
    Record,
    RecordingTaken,
    ThreadTimeline,
)
from profd.daemon.store.tables import REMEMBERED_NS, Interning, Recent, Tables

STACK = (Frame("<module>", "/srv/train.py", 3), Frame("train", "/srv/train.py", 9))
LATER_NS = STARTED_NS + 10 * REMEMBERED_NS


@pytest.fixture
def tables(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    for name in ("FRAMES_HELD", "STACKS_HELD", "THREADS_HELD", "SERIES_HELD"):
        monkeypatch.setattr(tables_module, name, getattr(tables_module, name) >> 4)
    made = Tables(database.create(path), describe)
    made.begin(run_started())
    yield made
    made.close()


def life(number: int, at_ns: int) -> list[Record]:
    """Return what is written of a worker that lived for ten seconds."""
    worker = Identity(1000 + number, 7)
    thread = ThreadTimeline(worker.pid, "MainThread", is_main=True, intervals=(Interval(at_ns, SECOND_NS, 0, 5),))
    points = tuple(Point(name, 1.0, worker) for name in ("cpu_cores", "rss_bytes", "threads"))
    return [
        ProcessSeen(worker, None, (), "worker", None, number, "3.11", at_ns),
        PointsTaken(at_ns, points),
        RecordingTaken(worker, at_ns, at_ns + SECOND_NS, 20, 5, 0, 0, 0, 0, (STACK,), (thread,)),
        ProcessEnded(worker, at_ns + 10 * SECOND_NS, 0),
    ]


def held_after(tables: Tables, workers: int) -> int:
    for number in range(workers):
        tables.commit(life(number, STARTED_NS + number * 10 * SECOND_NS))
    return len(tables._ids)


def test_workers_that_came_and_went_are_not_held(tables: Tables) -> None:
    assert held_after(tables, 400) < 40


@pytest.mark.parametrize(
    ("told", "names"),
    [
        (["", "feeder", ""], ["feeder"]),
        (["feeder", "", "feeder"], ["feeder"]),
        (["", "", "autograd"], ["autograd"]),
        (["feeder", "reader", ""], ["feeder", "reader"]),
    ],
)
def test_a_thread_without_a_name_is_the_one_that_has_it(
    tables: Tables, path: Path, told: list[str], names: list[str]
) -> None:
    for place, name in enumerate(told):
        at_ns = STARTED_NS + place * SECOND_NS
        timeline = ThreadTimeline(5000, name, is_main=False, intervals=(Interval(at_ns, SECOND_NS, 0, 5),))
        tables.commit([RecordingTaken(MAIN, at_ns, at_ns + SECOND_NS, 20, 5, 0, 0, 0, 0, (STACK,), (timeline,))])
    tables.finish()
    with RunReader(path) as reader:
        assert [row.name for row in reader.threads.values()] == names
        assert len(list(reader.intervals())) == len(told)


def test_a_process_that_makes_threads_for_ever_holds_few(tables: Tables) -> None:
    points = tuple(Point("cpu_cores", 0.0, MAIN, 5000 + number) for number in range(200))
    threads = tuple(ThreadTimeline(5000 + number, "feeder", is_main=False, intervals=()) for number in range(200))
    recording = RecordingTaken(MAIN, STARTED_NS, STARTED_NS, 20, 0, 0, 0, 0, 0, (), threads)
    tables.commit([PointsTaken(STARTED_NS, points), recording])
    assert len(tables._ids) <= 2 * (tables_module.THREADS_HELD + tables_module.SERIES_HELD) + 2


def test_functions_that_are_made_up_for_ever_are_not_all_held_and_keep_their_ids(tables: Tables) -> None:
    before = tables._ids.stacks([STACK])
    stacks = tuple((Frame("made_up", f"<code {number}>", 1),) for number in range(3 * tables_module.STACKS_HELD))
    tables.commit([RecordingTaken(Identity(1, 1), STARTED_NS, STARTED_NS, 20, 0, 0, 0, 0, 0, stacks, ())])
    assert len(tables._ids) <= 2 * (tables_module.STACKS_HELD + tables_module.FRAMES_HELD) + 2
    assert tables._ids.stacks([STACK]) == before


def test_what_comes_late_of_who_was_forgotten_belongs_to_the_same_process(tables: Tables, path: Path) -> None:
    first, late = life(1, STARTED_NS), life(1, LATER_NS)
    tables.commit(first)
    tables.commit(life(2, LATER_NS))  # time goes on: worker 1 is forgotten
    assert len(tables._ids) < 15
    tables.commit(late[1:3])
    tables.finish()
    with RunReader(path) as reader:
        assert [row.pid for row in reader.processes.values()] == [1001, 1002]
        assert len(reader.threads) == 2
        assert len(reader.series) == 6
        assert len(list(reader.intervals())) == 3


def test_a_child_keeps_its_parent_when_that_was_forgotten(tables: Tables, path: Path) -> None:
    parent, child = Identity(1001, 7), Identity(3000, 7)
    tables.commit(life(1, STARTED_NS))
    tables.commit([ProcessSeen(child, parent, (), "helper", None, None, "3.11", LATER_NS)])
    tables.commit([ProcessSeen(child, parent, (), "worker", None, 1, "3.11", LATER_NS + 20 * REMEMBERED_NS)])
    tables.finish()
    with RunReader(path) as reader:
        ids = {row.pid: row.id for row in reader.processes.values()}
        assert [(row.pid, row.parent, row.role) for row in reader.processes.values()] == [
            (parent.pid, None, "worker"),
            (child.pid, ids[parent.pid], "worker"),
        ]


def test_who_is_forgotten_again_is_not_held_either(tables: Tables) -> None:
    tables.commit(life(1, STARTED_NS))
    for number in range(2, 100):
        tables.commit([*life(number, STARTED_NS + number * REMEMBERED_NS), *life(1, STARTED_NS)[1:2]])
    assert len(tables._ids) < 40


def test_the_machine_has_series_of_its_own(tables: Tables) -> None:
    shared = Point("host_cpu_share", 0.5)
    assert tables._ids.series(shared) == tables._ids.series(Point("host_cpu_share", 0.7))
    assert tables._ids.series(shared) != tables._ids.series(Point("host_cpu_share", 0.5, device="cpu0"))


def test_nothing_is_written_of_a_process_that_the_file_does_not_know(path: Path) -> None:
    with pytest.raises(LookupError):
        Interning(database.create(path), describe).thread(Identity(1, 1), 1, "MainThread", is_main=True)


def test_recent_ids_are_looked_up_once_and_old_ones_again() -> None:
    recent: Recent[int] = Recent(2)
    asked: list[int] = []

    def look_up(key: int) -> Callable[[], int]:
        def found() -> int:
            asked.append(key)
            return 10 * key

        return found

    assert [recent.get(key, look_up(key)) for key in (1, 2, 1, 3, 1, 4, 1)] == [10, 20, 10, 30, 10, 40, 10]
    assert asked == [1, 2, 3, 4]  # 1 is asked for all the time, and never forgotten
    assert recent.get(2, look_up(2)) == 20
    assert asked == [1, 2, 3, 4, 2]
    assert len(recent) <= 4


def test_who_has_just_ended_is_still_held(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.commit(life(1, STARTED_NS))
    tables.commit(life(2, STARTED_NS + REMEMBERED_NS)[:1])
    monkeypatch.setattr(tables._ids, "_find", lambda table, row: pytest.fail(f"{table} was asked for {row}"))
    assert tables._ids.process(Identity(1001, 7)) == 1
