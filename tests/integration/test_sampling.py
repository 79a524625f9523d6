"""A real session with the real py-spy: processes, their roles, their stacks and their steps are in
the run file.
"""

from __future__ import annotations

import contextlib
import gzip
import sqlite3
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from support.folders import TARGET
from support.launches import PROFD, printed, profd
from support.sessions import begin_session, finished, hand_over, hurry_until, running, seen
from support.waiting import has_begun, until

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.analyze.steps import take_steps
from profd.daemon.events import EventKind
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow

TURNS = 2
COUNTS = 3
CANARY_LOOP = """
def train():
    key = "-".join(("canary", "of", "a", "local"))
    for step in range(1 << 40):
        sum(range(1_000_000))

print("ready", flush=True)
train()
"""
"""Lines of source are stored; what they build in a local variable is not."""


def has_counts(reader: RunReader) -> bool:
    return len(step_counts(reader)) >= COUNTS


def step_counts(reader: RunReader) -> list[PointRow]:
    series = [row.id for row in reader.list_series() if row.name == "step_count"]
    return [point for one in series for point in reader.points(one)]


def functions_of(reader: RunReader, process: int) -> set[str]:
    """Return the names of all functions on the stacks of a process."""
    threads = [thread.id for thread in reader.threads.values() if thread.process == process]
    stacks = {one.stack for one in reader.intervals(threads=threads)}
    return {frame.function for stack in stacks for frame in reader.frames_of(stack)}


@pytest.mark.requires("torch")
def test_ranks_of_torchrun_are_known_and_sampled_and_their_steps_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_file = tmp_path / "job.profd"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = [PROFD, "run", "--headless", "--quiet", "--budget", "80", "-o", str(run_file), "--"]
    words += [*torchrun, str(TARGET / "ddp_mlp.py"), "--seconds", "3600"]

    def are_known() -> bool:
        with RunReader(run_file) as reader:
            mains = [row for row in reader.processes.values() if row.role == "main"]
            counted = {row.process for row in reader.list_series("step_count")}
            return len(mains) == 2 and all(
                row.id in counted and "_engine_run_backward" in functions_of(reader, row.id)
                for row in mains
            )

    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as launched:
        until(lambda: has_begun(run_file), "a run file")
        hurry_until(run_file, are_known, "backward passes and steps of both ranks")
        launched.terminate()
    with RunReader(run_file) as reader:
        launcher, *others = reader.processes.values()
        mains = [row for row in others if row.role == "main"]
        assert launcher.role == "launcher"
        assert sorted(row.rank for row in mains if row.rank is not None) == [0, 1]
        assert {row.parent for row in mains} == {launcher.id}
        assert len(MAIN_THREADS.threads(reader)) == 2
    summary = printed(profd("summary", str(run_file), "--json"))
    assert sorted(row.rank for row in summary.processes if row.role == "main") == [0, 1]


@pytest.mark.requires("torch")
def test_a_training_and_its_workers_are_sampled_by_their_roles() -> None:
    with running("loader.py") as program:
        session = begin_session(program.pid)

        def has_turns(reader: RunReader) -> bool:
            workers = [row.id for row in reader.processes.values() if row.role == "worker"]
            taken = Counter(one.process for one in reader.recordings())
            return len(workers) == 2 and all(taken[worker] >= TURNS for worker in workers)

        hurry_until(session.run_file, lambda: seen(session, has_turns), "two turns of each worker")
        reader = finished(session)
    with reader:
        (trainer,) = (row for row in reader.processes.values() if row.role == "main")
        workers = [row for row in reader.processes.values() if row.role == "worker"]
        assert trainer.pid == program.pid
        assert sorted(worker.ordinal or 0 for worker in workers) == [1, 2]
        assert {worker.parent for worker in workers} == {trainer.id}
        assert {"<module>", "main"} <= functions_of(reader, trainer.id)
        for worker in workers:
            assert "decode_image" in functions_of(reader, worker.id)
        # They take turns: no two of them are read at one time.
        turns = [one for one in reader.recordings() if one.process != trainer.id]
        assert all(before.end_ns <= after.start_ns for before, after in pairwise(turns))


def test_the_loop_counter_is_found_named_and_followed(tmp_path: Path) -> None:
    with running(str(Path("steploops") / "enumerate_loop.py"), tmp_path / "diary") as program:
        session, without = begin_session(program.pid), begin_session(program.pid, steps=False)
        until(lambda: seen(session, has_counts), "counts of steps")
        hand_over(without.run_file)
        reader, unread = finished(session), finished(without)
    with reader, unread:
        named = [event.text for event in reader.events() if event.kind == "counter"]
        assert [text.partition(" (")[0] for text in named] == ["loop counter `i` in train"]
        counts = step_counts(reader)
        assert all(before.at_ns < after.at_ns for before, after in pairwise(counts))
        assert all(before.value <= after.value for before, after in pairwise(counts))
        # A counter that is not to be read is not.
        assert step_counts(unread) == []
        assert [event for event in unread.events() if event.kind == "counter"] == []


def test_a_training_that_nothing_counts_has_no_steps_by_its_warm_up(tmp_path: Path) -> None:
    with running(str(Path("steploops") / "warmed_up.py"), tmp_path / "diary") as program:
        session = begin_session(program.pid)

        def is_lost(reader: RunReader) -> bool:
            return any(event.kind == EventKind.STEPS_LOST for event in reader.events())

        until(lambda: seen(session, step_counts), "a count of steps")
        (tmp_path / "diary.warm").touch()
        until(lambda: seen(session, is_lost), "training without a counter")
        reader = finished(session)
    with reader:
        steps = take_steps(reader, MAIN_THREADS, PhaseIndex(reader))
    why = (
        "steps are not counted any more: the loop at warmed_up.py:32 has no counter "
        "that can be read"
    )
    assert (steps.count, steps.why_unknown) == (None, why)


def test_no_environment_and_no_local_variable_is_in_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("API_KEY", "canary-of-the-environment")
    script = tmp_path / "loop.py"
    script.write_text(CANARY_LOOP)
    with running(script) as program:
        assert b"canary-of-the-environment" in Path(f"/proc/{program.pid}/environ").read_bytes()
        session = begin_session(program.pid)
        until(
            lambda: seen(session, has_counts),
            "counts of steps, for which py-spy shows all local variables",
        )
        finished(session).close()
    stored = b"".join(everything_in(session.run_file))
    assert b"train" in stored  # the name of the function
    assert b"canary" not in stored


def everything_in(run_file: Path) -> Iterator[bytes]:
    """Yield the bytes of a run file, and all of its values, those that are packed unpacked."""
    yield run_file.read_bytes()
    with contextlib.closing(sqlite3.connect(run_file)) as database:
        for (table,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            for row in database.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    data = value if isinstance(value, bytes) else str(value).encode()
                    for unpack in (bytes, gzip.decompress, zlib.decompress):
                        with contextlib.suppress(OSError, EOFError, zlib.error):
                            yield unpack(data)
