"""The live run that records a process: an existing one, or one that is started for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profd.cli.console import say
from profd.cli.options import RecordingOptions
from profd.daemon import paths, processes
from profd.daemon.errors import (
    NoSuchProcess,
    OutputUnwritable,
    ProfdError,
    SessionFailed,
    UsageError,
)
from profd.daemon.session.session import CLOSING_S, SessionOptions, start_session
from profd.daemon.tree.attachable import ThriftySystem, check_attachable

if TYPE_CHECKING:
    from profd.daemon.store.reader import RunReader


def pid_of(word: str) -> int | None:
    """Return a word as a PID; None if it is no number, or names a run."""
    if not word.isdecimal() or any(
        path.stem == word or paths.run_name(path) == word for path in paths.list_runs()
    ):
        return None
    return int(word)


def live_run_of(pid: int) -> Path | None:
    """Return the file of the newest live run of this user that records a process."""
    return live_runs_of([pid]).get(pid)


def live_runs_of(pids: Iterable[int]) -> dict[int, Path]:
    """Return the file of the newest live run of this user that records each process.

    Processes that no such run records are left out.
    """
    found: dict[int, Path] = {}
    if live := _listening():
        from profd.daemon.store.reader import RunReader

        wanted = set(pids)
        for path in live:
            with contextlib.suppress(ProfdError), RunReader(path) as reader:
                if reader.info.is_live:
                    found |= {pid: path for pid in wanted - found.keys() if _is_in(reader, pid)}
    return found


def _listening() -> list[Path]:
    """Return the files of the runs in which a session listens.

    The newest come first, then those that `-o` put elsewhere. A file is opened only if its session
    listens: most runs have ended, and there may be hundreds.
    """
    try:
        sockets = {socket.stem: socket for socket in paths.runtime_folder().glob("*.sock")}
    except OutputUnwritable:  # without a place for sockets, no session listens
        return []
    found = [path for path in paths.list_runs() if sockets.pop(path.stem, None)]
    if sockets:
        from profd.daemon.session.control import ControlClient

        for socket in sockets.values():  # its session knows the path of its run
            with (
                contextlib.suppress(SessionFailed),
                contextlib.closing(ControlClient(socket)) as client,
            ):
                found.append(Path(client.hello().run_file))
    return found


def find_live(word: str) -> Path:
    """Return the run file that a command for a live run means.

    If the word is ``latest``, that is the newest live run.
    """
    from profd.daemon.api.opening import find_run
    from profd.daemon.store.reader import RunReader

    found: list[tuple[int, Path]] = []
    for path in _listening() if word == paths.LATEST else ():
        with contextlib.suppress(ProfdError), RunReader(path) as reader:
            found += [(reader.info.started_ns, path)] if reader.info.is_live else []
    return max(found)[1] if found else find_run(word, say)


@contextlib.contextmanager
def run_of(pid: int, *, inject: bool) -> Iterator[Path]:
    """Give the file of the live run that records a process.

    If there is none, record the process for the duration of the context. Raises UsageError if there
    is none and nothing may be injected into the process, and ProfdError if it cannot be recorded.
    """
    if (live := live_run_of(pid)) is not None:
        yield live
        return
    # Imported here because `attach`, which stays as long as the recording, does not need it.
    from profd.daemon.store.reader import RunReader

    if not inject:
        remedy = (
            "launch it with `profd run --torch-window -- CMD`, or add --inject to start the "
            "profiler inside of it"
        )
        raise UsageError(f"process {pid} is in no live run that is armed for windows", remedy)
    session = start_session(attached(pid))
    say(f"recording pid {pid} as {session.run_file.stem} meanwhile")
    try:
        deadline = time.monotonic() + 10.0
        with RunReader(session.run_file) as reader:
            while not _is_in(reader, pid):
                if time.monotonic() > deadline or not session.is_running():
                    raise SessionFailed(
                        f"process {pid} is not being recorded", f"see `profd attach {pid}`"
                    )
                time.sleep(0.05)
                reader.refresh()
        yield session.run_file
    finally:
        session.end()
        session.wait_closed(CLOSING_S)


def _is_in(reader: RunReader, pid: int) -> bool:
    """Say whether the process that has a PID now is one of a run."""
    known = {(process.pid, process.start_ticks) for process in reader.processes.values()}
    return (stat := processes.read_stat(pid)) is not None and (pid, stat.start_ticks) in known


def attached(pid: int, recording: RecordingOptions = RecordingOptions()) -> SessionOptions:  # noqa: B008  immutable
    """Return the options of a session that records a running process.

    Raises ProfdError if it cannot be recorded.
    """
    if unread := check_attachable(pid, ThriftySystem()):
        say(unread)
    stat = processes.read_stat(pid)
    if stat is None:
        raise NoSuchProcess(
            f"pid {pid} ended while it was looked at", "`profd ls` lists what runs now"
        )
    return recording.session(processes.command_line(pid), "attached", pid, stat.start_ticks)
