"""Hangs of programs are found from outside, each with its cause.

When a run hangs: tests/unit/hangs.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.folders import PROGRAMS
from support.sessions import begin_session, finished, give_line, ready, running, seen
from support.waiting import until

from profd.cli import dump
from profd.daemon.events import EventKind
from profd.daemon.session.session import RunningSession
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import STEP_COUNT, HangFound

AFTER_S = 1.0
"""Short: whoever is not yet to hang computes until it is given a line, so no machine is too slow
for it.
"""


@contextlib.contextmanager
def watched(pid: int, *, on_hang: str | None = None) -> Iterator[RunningSession]:
    session = begin_session(pid, hang_after_s=AFTER_S, on_hang=on_hang)
    yield session
    finished(session).close()


def hangs_of(session: RunningSession) -> list[HangFound]:
    return seen(session, RunReader.hangs)


def test_worker_that_was_killed() -> None:
    with running("hangs/dead_worker.py") as target, watched(target.pid) as session:
        until(
            lambda: seen(session, lambda reader: len(reader.processes)) >= 3,
            "a recording of the pool",
        )
        give_line(target)
        (hang,) = until(lambda: hangs_of(session), "a hang")
        dumped = CliRunner().invoke(dump.command, [str(session.run_file)], standalone_mode=False)
    assert hang.report.cause == "dead worker", hang.text
    assert any("ended" in fact for fact in hang.report.facts)
    assert dumped.stdout.startswith("▲ no progress for "), dumped


@pytest.mark.requires("torch")
def test_collective_that_one_rank_does_not_join(tmp_path: Path) -> None:
    rank = f"{sys.executable} {PROGRAMS / 'hangs/collective.py'} {tmp_path / 'store'}"
    with (
        ready(["sh", "-c", f"RANK=0 {rank} & RANK=1 {rank} & wait"]) as target,
        watched(target.pid) as session,
    ):
        (hang,) = until(lambda: hangs_of(session), "a hang")
    assert hang.report.cause == "collective", hang.text
    (one,) = hang.report.behind
    assert (one.rank, one.operation) == (1, "all_reduce")
    assert one.place.startswith("Event.wait (collective.py:")
    assert "1 of 2 ranks wait for that in all_reduce: rank 0 " in hang.text


def test_run_goes_on_after_a_hang_and_the_users_command_is_run(tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = f'echo "$PROFD_HANG_CAUSE $PROFD_PID" > {said}'
    with (
        running("shortjob.py", "1000000") as target,
        watched(target.pid, on_hang=command) as session,
    ):
        (hang,) = until(lambda: hangs_of(session), "a hang")
        give_line(target)
        until(lambda: hangs_of(session)[0].ended_ns is not None, "the end of the hang")
        until(lambda: said.exists() and said.read_text(), "the user's command")
    assert hang.report.cause == "blocked read"
    (group, *_) = hang.report.groups
    assert "reads a pipe" in group.stands[0].wait
    assert said.read_text().split() == ["blocked", "read", str(target.pid)]


def test_rank_that_nccl_has_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it but NCCL itself is real: mapped file, port, PIDs.

    The ranks have no number in their environment.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("NCCL_RAS_ADDR", f"localhost:{free.getsockname()[1]}")
    with running("hangs/nccl_ranks.py", tmp_path) as target, watched(target.pid) as session:
        # NCCL is not asked before the job is set up, and a job that hangs earlier has no counts.
        until(lambda: seen(session, has_counted), "a count that grew")
        give_line(target)
        (hang,) = until(lambda: hangs_of(session), "a hang")
        ranks = seen(session, ranks_of)
        notes = seen(
            session,
            lambda reader: [
                event.text for event in reader.events() if event.kind == EventKind.NOTE
            ],
        )
    assert hang.report.behind, (hang.text, notes)
    (one,) = hang.report.behind
    assert (one.rank, one.pid, one.operation) == (1, ranks[1], "AllReduce"), (hang.text, notes)
    assert "has not come to AllReduce 1001, in which the others wait; it stands in " in hang.text
    assert "(nccl_ranks.py:" in one.place


def has_counted(reader: RunReader) -> bool:
    return any(
        len({point.value for point in reader.points(one.id)}) > 1
        for one in reader.list_series(STEP_COUNT)
    )


def ranks_of(reader: RunReader) -> dict[int | None, int]:
    return {row.rank: row.pid for row in reader.processes.values() if row.role == "main"}
