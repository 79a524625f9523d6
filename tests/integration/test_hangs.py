"""Planted hangs are told within the time asked for, each with the right group of causes; work that is slow is none."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner
from sessions import PROGRAMS, begin_session, running, wait_ready

from profd.cli import dump
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import HangRow, ProcessRow
from profd.daemon.supervise.control import ControlClient
from profd.daemon.supervise.session import RunningSession

AFTER_S = 4.0
DEADLINE_S = 45.0
HANGS = PROGRAMS / "hangs"

Found = TypeVar("Found")


@contextlib.contextmanager
def hanging(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a program of its own group until it says that it hangs from now on; all of the group is killed at the end."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_ready(process)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(find: Callable[[], list[Found]]) -> Found:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := find()):
        assert time.monotonic() < deadline, f"nothing was found within {DEADLINE_S:.0f} s"
        select.select([], [], [], 0.1)
    return found[0]


def recorded(session: RunningSession) -> list[ProcessRow]:
    with RunReader(session.run_file) as reader:
        return list(reader.processes.values())


def told(session: RunningSession) -> list[HangRow]:
    with RunReader(session.run_file) as reader:
        return reader.hangs()


def hang_of(program: str, *, processes: int = 1) -> HangRow:
    """Run a program that hangs, and return what is told of it; ``hang_of_command`` says more."""
    return hang_of_command([sys.executable, str(HANGS / program)], processes)


def hang_of_command(command: Sequence[str], processes: int = 1) -> HangRow:
    """Give a program a line once that many processes of it are recorded, and return what is told of its hang."""
    with hanging(command) as target:
        session = begin_session(target.pid, hang_after_s=AFTER_S)
        wait_for(lambda: recorded(session)[processes - 1 :])
        assert target.stdin is not None
        target.stdin.write("go on\n")
        target.stdin.flush()
        hang = wait_for(lambda: told(session))
        assert target.poll() is None
        dumped = CliRunner().invoke(dump.command, [str(session.run_file)], standalone_mode=False)
        assert dumped.stdout.startswith("▲ no progress for "), dumped
        ControlClient(session.control_socket).stop()
        assert session.wait_closed(DEADLINE_S)
    return hang


def steps_of(session: RunningSession) -> list[float]:
    """Return the steps that were counted, once there are some."""
    with RunReader(session.run_file) as reader:
        counted = [series for series in reader.series.values() if series.name == "step_count"]
        return [point.value for series in counted for point in reader.points(series.id)][1:]


def waits(hang: HangRow) -> str:
    return " | ".join(f"{stand.who}: {stand.wait}" for group in hang.report.groups for stand in group.stands)


def test_queue_that_nobody_fills() -> None:
    hang = hang_of("queue_wait.py")
    assert hang.cause == "queue", hang.text
    assert "the main process" in hang.text
    assert "reads a pipe" in waits(hang)
    assert {stand.role for group in hang.report.groups for stand in group.stands} >= {"main"}
    assert (hang.at_ns - hang.since_ns) / SECOND_NS < 3 * AFTER_S


def test_lock_that_another_thread_holds() -> None:
    hang = hang_of("lock_wait.py")
    assert hang.cause == "lock", hang.text
    stands = [stand for group in hang.report.groups for stand in group.stands]
    assert len(stands) == 2
    assert all("a lock" in stand.wait for stand in stands)


def test_worker_that_was_killed() -> None:
    hang = hang_of("dead_worker.py", processes=3)
    assert hang.cause == "dead worker", hang.text
    assert any("ended" in fact for fact in hang.report.facts)


def test_collective_that_one_rank_does_not_join(tmp_path: Path) -> None:
    rank = f"{sys.executable} {HANGS / 'collective.py'} {tmp_path / 'store'}"
    hang = hang_of_command(["sh", "-c", f"RANK=0 {rank} & RANK=1 {rank} & wait"])
    assert hang.cause == "collective", hang.text
    assert "1 of 2 processes" in hang.text
    assert "rank 1 stands in Event.wait (collective.py:" in hang.text


def test_pipe_that_nobody_writes() -> None:
    hang = hang_of("blocked_read.py")
    assert hang.cause == "blocked read", hang.text
    assert "reads a pipe; it alone holds the writing end" in waits(hang)


def test_worker_whose_file_does_not_answer(tmp_path: Path) -> None:
    command = [sys.executable, str(HANGS / "stuck_read.py"), str(tmp_path / "sample")]
    hang = hang_of_command(command, 2)
    assert hang.cause == "blocked read", hang.text
    assert "__next__" in hang.text
    assert f"opens {tmp_path / 'sample'}" in hang.text


def test_wait_that_spins_once_steps_are_counted() -> None:
    with hanging([sys.executable, str(HANGS / "spin_wait.py")]) as target:
        session = begin_session(target.pid, hang_after_s=2.0)
        wait_for(lambda: steps_of(session))
        assert target.stdin is not None
        target.stdin.write("go on\n")
        target.stdin.flush()
        hang = wait_for(lambda: told(session))
        ControlClient(session.control_socket).stop()
        assert session.wait_closed(DEADLINE_S)
    assert hang.cause == "spin", hang.text
    assert "the main process stands in spin (spin_wait.py:" in hang.text


def test_slow_phases_are_no_hangs() -> None:
    with hanging([sys.executable, str(HANGS / "slow_phases.py")]) as target:
        session = begin_session(target.pid, hang_after_s=2.0)
        assert session.wait_closed(DEADLINE_S)
    with RunReader(session.run_file) as reader:
        assert reader.info.why_ended == "target-exited"
        assert [hang.text for hang in reader.hangs()] == []


def test_run_goes_on_after_a_hang_and_the_users_command_is_run(tmp_path: Path) -> None:
    told_to = tmp_path / "told"
    with running("hangs/paused.py") as target:
        session = begin_session(
            target.pid, hang_after_s=AFTER_S, on_hang=f'echo "$PROFD_HANG_CAUSE $PROFD_PID" > {told_to}'
        )
        wait_for(lambda: told(session))
        assert target.stdin is not None
        target.stdin.write("go on\n")
        target.stdin.flush()
        hang = wait_for(lambda: [hang for hang in told(session) if hang.ended_ns is not None])
        ControlClient(session.control_socket).stop()
        assert session.wait_closed(DEADLINE_S)
    assert hang.cause == "blocked read"
    assert told_to.read_text().split() == ["blocked", "read", str(target.pid)]
