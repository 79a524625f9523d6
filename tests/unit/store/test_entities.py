"""What the rows of a run file refer to: what a look takes in, keeps, and refuses."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.synthetic import (
    COMMAND,
    MAIN,
    MAIN_TID,
    STARTED_NS,
    main_process,
    recording,
    write_records,
    write_run,
)
from support.training_stacks import DATA_WAIT, TRAIN

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.store.entities import LINGER_NS, Entities, has_ended
from profd.daemon.store.merge import JoinedNode, join_runs
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    Frame,
    Identity,
    Point,
    PointsTaken,
    ProcessEnded,
    ProcessSeen,
)
from profd.daemon.store.tables import Tables

WORKER = Identity(7000, 4000)


def test_a_reader_goes_on_from_what_an_earlier_one_knew_and_reads_no_row_twice(
    tmp_path: Path,
) -> None:
    known = Entities()
    path = write_run(tmp_path / "a.profd", seconds=3)
    with RunReader(path, known) as reader:
        assert not reader.stacks
        reader.refresh()
    with RunReader(path, known) as reader, RunReader(path) as whole:
        assert (reader.info, reader.processes, reader.threads) == (
            whole.info,
            whole.processes,
            whole.threads,
        )
        assert (reader.stacks, reader.frames) == (whole.stacks, whole.frames)
        deepest = max(reader.stacks)
        assert known.frames_of(deepest)[-1].id == reader.stacks[deepest].frame
        statements: list[str] = []
        whole._connection.set_trace_callback(statements.append)
        whole.refresh()
    assert all("max(id)" in statement or "FROM meta" in statement for statement in statements)


def test_frames_without_gradients_are_known_to_readers_and_of_joined_runs(tmp_path: Path) -> None:
    frames = (Frame("train", TRAIN, 61), Frame("train", TRAIN, 72))
    threads = [(MAIN_TID, "MainThread", True, tuple(((frame,), 500) for frame in frames))]
    write_records(tmp_path / "one.profd", [main_process(), recording(MAIN, STARTED_NS, threads)])
    with RunReader(tmp_path / "one.profd") as one:
        join_runs(
            [one], [JoinedNode(0, "a", "run-a", 0, 0, "", 0)], "both", tmp_path / "joined.profd"
        )
        with RunReader(tmp_path / "joined.profd") as joined:
            for reader in (one, joined):
                assert [
                    reader.frames[frame].line for frame in reader.entities.without_gradients
                ] == [72]


def test_the_end_of_a_process_and_the_name_of_a_thread_come_later(
    live: Tables, tmp_path: Path
) -> None:
    live.commit(
        [main_process(), recording(MAIN, STARTED_NS, ((77, "", False, ((DATA_WAIT, 500),)),))]
    )
    with RunReader(tmp_path / "live.profd") as reader:
        (thread,), (process,) = reader.threads.values(), reader.processes.values()
        assert (thread.name, process.exit_code) == ("", None)
        named = recording(
            MAIN, STARTED_NS + SECOND_NS, ((77, "loader", False, ((DATA_WAIT, 500),)),)
        )
        live.commit([named, ProcessEnded(MAIN, STARTED_NS + 2 * SECOND_NS, exit_code=3)])
        reader.refresh()
        (thread,), (process,) = reader.threads.values(), reader.processes.values()
        assert (thread.name, process.exit_code) == ("loader", 3)


def test_of_a_long_run_only_what_lives_is_kept(live: Tables, tmp_path: Path) -> None:
    def refreshed() -> RunReader:
        with RunReader(tmp_path / "live.profd", known) as reader:
            reader.refresh()
            return reader

    known = Entities(has_ended, only_main_threads=True)
    points = tuple(
        Point(name, 1.0, one) for one in (MAIN, WORKER) for name in ("rss_bytes", "threads")
    )
    main_thread, other = (MAIN_TID, "MainThread", True, ()), (77, "loader", False, ())
    worker = ProcessSeen(WORKER, MAIN, COMMAND, "worker", None, 1, None, STARTED_NS)
    live.commit([main_process(), worker, PointsTaken(STARTED_NS, points)])
    live.commit([recording(MAIN, STARTED_NS, (main_thread, other))])
    reader = refreshed()
    assert {row.role for row in reader.processes.values()} == {"main", "worker"}
    assert [row.os_tid for row in reader.threads.values()] == [MAIN_TID]

    ended_ns = STARTED_NS + SECOND_NS
    live.commit([ProcessEnded(WORKER, ended_ns), ProcessEnded(MAIN, ended_ns)])
    reader = refreshed()
    # The last recording of a training process comes after its end.
    assert {row.role for row in reader.processes.values()} == {"main"}
    assert len(reader.threads) == 1

    live.commit([PointsTaken(ended_ns + LINGER_NS + 1, (Point("host_cpu_share", 0.5),))])
    reader = refreshed()
    assert not reader.processes
    assert not reader.threads


@pytest.mark.parametrize("known", [Entities(), Entities(has_ended)])
@pytest.mark.parametrize("parent", ["id", "id + 1", "1000000"])
def test_stacks_that_go_in_a_circle_are_damage(
    tmp_path: Path, parent: str, known: Entities
) -> None:
    path = write_run(tmp_path / "a.profd", seconds=3)
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE stack SET parent = {parent} WHERE id = 2")
    with RunReader(path, known) as reader:
        for _ in range(2):
            with pytest.raises(RunUnreadable, match="stack 2 is damaged"):
                reader.refresh() if known.is_whole else reader.check_known(stacks=[3, 2])


def test_where_processes_are_forgotten_a_stack_is_read_with_its_callers_once_a_row_names_it(
    tmp_path: Path,
) -> None:
    path = write_run(tmp_path / "a.profd", seconds=3)
    with RunReader(path) as whole, RunReader(path, Entities(has_ended)) as reader:
        deepest = max(whole.stacks)
        reader.refresh()
        assert not reader.stacks
        assert reader.frames_of(deepest) == whole.frames_of(deepest)
        assert reader.stacks.keys() < whole.stacks.keys()
        reader.stacks.clear()
        assert {row.stack for row in reader.intervals()} <= reader.stacks.keys()
        assert all(reader.frames_of(stack) == whole.frames_of(stack) for stack in reader.stacks)


def test_a_stack_that_is_younger_than_the_tables_in_memory_is_read_with_its_frames(
    live: Tables, tmp_path: Path
) -> None:
    live.commit([main_process()])
    with RunReader(tmp_path / "live.profd", Entities(has_ended)) as reader:
        reader.refresh()
        live.commit(
            [recording(MAIN, STARTED_NS, ((MAIN_TID, "MainThread", True, ((DATA_WAIT, 500),)),))]
        )
        (interval,) = reader.intervals()
        assert [frame.function for frame in reader.frames_of(interval.stack)] == [
            one.function for one in DATA_WAIT
        ]


def test_rows_that_name_no_stack_of_the_file_are_damage(tmp_path: Path) -> None:
    with RunReader(write_run(tmp_path / "a.profd", seconds=3), Entities(has_ended)) as reader:
        reader.refresh()
        reader.check_known(stacks=[1])
        with pytest.raises(RunUnreadable, match="a stack that is not there"):
            reader.check_known(stacks=[4096])
