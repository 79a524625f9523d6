"""Finds the live run that records a process, or records the process for a while."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from profd.cli.output import say
from profd.daemon import paths, processes
from profd.daemon.errors import NoSuchProcess, ProfdError, SessionFailed, UsageError
from profd.daemon.naming import script_name
from profd.daemon.store.reader import RunReader
from profd.daemon.supervise.diagnosis import check_attachable
from profd.daemon.supervise.session import RunningSession, SessionOptions, start_session
from profd.daemon.windows.arming import sockets_of

_SEEN_TIMEOUT_S = 10.0
_CLOSING_S = 30.0
_LOOK_INTERVAL_S = 0.05


def pid_of(word: str) -> int | None:
    """Return the PID that a word is; None where it is none, or names a run."""
    if not word.isdecimal() or any(path.stem == word or paths.run_name(path) == word for path in paths.list_runs()):
        return None
    return int(word)


@contextlib.contextmanager
def run_of(pid: int, *, inject: bool) -> Iterator[Path]:
    """Give the file of the live run that records a process; where there is none, record it for as long as this lasts.

    Raises UsageError where there is none, the process was not armed and nothing may be put into it, and ProfdError
    where it cannot be recorded.
    """
    if (path := _find_live(pid)) is not None:
        yield path
        return
    if not inject and sockets_of(pid) is None:
        raise UsageError(
            f"process {pid} is in no live run, and was not armed for windows",
            "launch it with `profd run --torch-window -- CMD`, or add --inject to start the profiler inside of it",
        )
    session = _record(pid)
    try:
        yield session.run_file
    finally:
        session.end()
        session.wait_closed(_CLOSING_S)


def _find_live(pid: int) -> Path | None:
    for path in paths.list_runs():
        with contextlib.suppress(ProfdError), RunReader(path) as reader:
            if reader.info.state == "live" and _is_in(reader, pid):
                return path
    return None


def _is_in(reader: RunReader, pid: int) -> bool:
    """Say whether the process that has a PID now is one of a run."""
    stat = processes.read_stat(pid)
    return stat is not None and any(
        (process.pid, process.start_ticks) == (pid, stat.start_ticks) for process in reader.processes.values()
    )


def _record(pid: int) -> RunningSession:
    """Begin to record a process, and return once it is known to the run."""
    check_attachable(pid)
    stat = processes.read_stat(pid)
    if stat is None:
        raise NoSuchProcess(f"pid {pid} ended while it was looked at", "`profd ls` lists what runs now")
    words = processes.command_line(pid)
    name = paths.clean_name(script_name(words))
    run_id = paths.new_run_id(name)
    options = SessionOptions(
        run_id=run_id,
        name=name,
        run_file=paths.new_run_file(run_id),
        mode="attached",
        pid=pid,
        start_ticks=stat.start_ticks,
        command=words,
    )
    session = start_session(options)
    say(f"recording pid {pid} as {run_id} meanwhile")
    _wait_until_seen(session, pid)
    return session


def _wait_until_seen(session: RunningSession, pid: int) -> None:
    deadline = time.monotonic() + _SEEN_TIMEOUT_S
    with RunReader(session.run_file) as reader:
        while not _is_in(reader, pid):
            if time.monotonic() > deadline or not session.is_running():
                raise SessionFailed(f"process {pid} is not being recorded", f"see `profd attach {pid}`")
            time.sleep(_LOOK_INTERVAL_S)
            reader.refresh()
