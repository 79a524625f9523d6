"""Real sessions for integration tests: programs that say when they are ready, recorded for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from profd.daemon import paths, processes
from profd.daemon.session.control import ControlClient
from profd.daemon.session.session import RunningSession, SessionOptions, start_session
from profd.daemon.store.reader import RunReader
from support.folders import PROGRAMS
from support.launches import state
from support.synthetic import identity_of
from support.waiting import DEADLINE_S, count_recordings, until

Seen = TypeVar("Seen")


def running(*words: str | Path) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """Run a Python program (of ``tests/programs`` where it is a bare name) and wait until it says
    ``ready``.
    """
    script = words[0] if isinstance(words[0], Path) else PROGRAMS / words[0]
    return ready([sys.executable, str(script), *map(str, words[1:])])


@contextlib.contextmanager
def ready(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a command until it says ``ready``.

    At the end it is killed, with all that it started in its group.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
    try:
        wait_ready(process)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_ready(process: subprocess.Popen[str]) -> None:
    """Wait for the line by which a program says that it is ready."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "ready":
            return
    raise AssertionError(f"the program ended with {process.wait()} before it was ready")


def give_line(process: subprocess.Popen[str]) -> None:
    """Let a program go on that waits for a line."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def counts_on(pid: int, numbers: Path) -> None:
    """See that ``counting.py`` goes on: it has not been left stopped."""
    before = numbers.stat().st_size
    until(lambda: numbers.stat().st_size > before, "counting on")
    assert state(pid) in "RSD"


def begin_session(pid: int, **more: object) -> RunningSession:
    """Start recording a process and its children; ``more`` are further options of a session."""
    return start_session(session_options("test", pid, **more))


def session_options(name: str, pid: int, **more: object) -> SessionOptions:
    """Return the options of a session that records a process, whatever that costs: its rate stays
    as it is.
    """
    run_id = paths.new_run_id(name)
    options = SessionOptions(
        run_id=run_id,
        name=name,
        run_file=paths.new_run_file(run_id),
        mode="attached",
        pid=pid,
        start_ticks=identity_of(pid).start_ticks,
        command=processes.command_line(pid),
        rate_hz=100,
        budget_percent=100.0,
        hang_after_s=None,
    )
    return msgspec.structs.replace(options, **more)


def seen(session: RunningSession, look: Callable[[RunReader], Seen]) -> Seen:
    """Return what a look into the run file of a session shows."""
    with RunReader(session.run_file) as reader:
        return look(reader)


def finished(session: RunningSession) -> RunReader:
    """End a recording as a user does, and return its run."""
    session.end()
    assert session.wait_closed(DEADLINE_S)
    return RunReader(session.run_file)


def hand_over(run_file: Path, times: int = 1) -> None:
    """Wait until the session that writes a run file has written so many more recordings."""
    wanted = count_recordings(run_file) + times
    hurry_until(run_file, lambda: count_recordings(run_file) >= wanted, f"{times} more recordings")


def control_of(socket: Path) -> ControlClient:
    """Return a client of a session that waits as long as a test waits for anything."""
    return ControlClient(socket, timeout_s=DEADLINE_S)


def hurry_until(run_file: Path, condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, and have the session end each recording soon: it may be long until then.

    The next recording is hurried once the last has come, so that the session is not kept from work.
    """
    with RunReader(run_file) as reader:
        client = control_of(Path(reader.info.control_socket))
    hurried = -1

    def holds() -> bool:
        nonlocal hurried
        if condition():
            return True
        if (taken := count_recordings(run_file)) > hurried:
            # what is in flight at another rate is not waited for
            client.aim_at_rate(client.hello().rate_hz)
            hurried = taken
        return False

    until(holds, what)
    client.close()
