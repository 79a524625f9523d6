"""Opens the runs that somebody names, and lists those there are.

A name is a file, an id, a PID, a folder with one file per node, or a URL of a file or folder.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from profd.daemon import paths
from profd.daemon.analyze.nodes import Folder, open_job, read_folder
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable, UsageError
from profd.daemon.store.bound import bounded_memory
from profd.daemon.store.database import is_without_log
from profd.daemon.store.reader import RunReader

Tell = Callable[[str], object]
"""Takes a sentence on what is not as the name suggests."""


@contextlib.contextmanager
def brought_here(run: str) -> Iterator[str]:
    """Give RUN, or a local copy of a URL; raises RunUnreadable, MissingTool or UsageError."""
    if "://" not in run:
        yield run
        return
    from profd.daemon.store.remote import fetch

    with tempfile.TemporaryDirectory(prefix="profd-") as folder:
        into = Path(folder) / paths.clean_name(run.rstrip("/").rpartition("/")[2])
        into.mkdir()
        yield os.fspath(fetch(run, into))


def find_run(word: str, tell: Tell) -> Path:
    """Return the run of ``paths.find_run``, but for ``latest`` the newest one that can be read.

    Tells which newer ones cannot be read.
    """
    for path in paths.list_runs() if word == paths.LATEST else ():
        try:
            RunReader(path).close()
        except RunUnreadable as error:
            tell(f"passed over: {error.what}")
        else:
            return path
    return paths.find_run(word)


def folder_of(run: str, job: str | None) -> Path | None:
    """Return RUN as a folder, None if it is a run.

    Raises UsageError if a job of a single run is named.
    """
    path = Path(run)
    is_path = os.sep in run or run in (os.curdir, os.pardir)
    is_folder = os.path.isdir(path)  # noqa: PTH112  Path raises for a folder that is not ours
    if is_folder and (is_path or any(path.glob(f"*{paths.SUFFIX}"))):
        return path
    if job is not None:
        raise UsageError(f"{run} is a run and no folder", "name no job")
    return None


def known_folder(folder: Path, tell: Tell) -> Folder:
    """Return the runs in a folder, and tell which of its files cannot be read."""
    found = read_folder(folder)
    for why in found.left_out:
        tell(f"left out: {why}")
    return found


@contextlib.contextmanager
def opened(run: str, job: str | None, tell: Tell, *, bounded: bool = False) -> Iterator[RunReader]:
    """Give a reader of a run, or of a job in a folder.

    ``bounded`` bounds the memory of this process meanwhile by the size of the files. Raises
    NoSuchRun, RunUnreadable, MissingTool, UsageError.
    """
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(brought_here(run))
        folder = folder_of(here, job)
        found = None if folder is None else known_folder(folder, tell).choose(job)
        files = [file.path for file in found.files] if found else [find_run(here, tell)]
        if bounded:
            stack.enter_context(bounded_memory(*files))
        reader = stack.enter_context(RunReader(files[0]) if found is None else open_job(found))
        if found is None:
            tell_of_log(reader, tell)
        yield reader


def tell_of_log(reader: RunReader, tell: Tell) -> None:
    """Tell if a run's last part may be in a log that is not there."""
    if reader.info.state != "ended" and is_without_log(reader.path):
        tell(
            f"{reader.path} has no log beside it: if it was copied while live, its last part "
            f"is in {reader.path.name}-wal"
        )


class ListedRun(msgspec.Struct, frozen=True):
    """A run in the list; one that cannot be read has only its file and ``error``.

    ``started`` is ISO 8601.
    """

    run: str
    file: str
    state: str
    name: str = ""
    pid: int | None = None
    command: tuple[str, ...] = ()
    started: str = ""
    duration_s: float | None = None
    samples: int | None = None
    error: str = ""


def list_runs() -> list[ListedRun]:
    """Return this user's runs, the newest first."""
    return [list_run(path) for path in paths.list_runs()]


def list_run(path: Path) -> ListedRun:
    """Return what the list says of a run file."""
    try:
        with RunReader(path) as reader:
            info, samples = reader.info, reader.recorded().whole
    except RunUnreadable as error:
        return ListedRun(run=path.stem, file=str(path), state="unreadable", error=error.what)
    started = datetime.fromtimestamp(info.started_ns / SECOND_NS).astimezone()
    return ListedRun(
        path.stem,
        str(path),
        info.state,
        info.name,
        info.target.pid,
        info.command,
        started.isoformat(timespec="seconds"),
        info.time.length_s,
        samples,
    )
