"""Finds the runs that a command names.

A name is a file, an id, a PID, a folder with one file per node, or a URL of a file or folder.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profd.cli.console import say
from profd.daemon import paths
from profd.daemon.errors import ExitCode, RunUnreadable, UsageError
from profd.daemon.store.bound import bounded_memory
from profd.daemon.store.database import is_without_log
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    from profd.daemon.analyze.nodes import Folder


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


def find_run(word: str) -> Path:
    """Return the run of ``paths.find_run``, but for ``latest`` the newest one that can be read.

    Says which newer ones cannot be read.
    """
    for path in paths.list_runs() if word == paths.LATEST else ():
        try:
            RunReader(path).close()
        except RunUnreadable as error:
            say(f"passed over: {error.what}")
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
        raise UsageError(f"{run} is a run and no folder", "leave --job away")
    return None


def known_folder(folder: Path) -> Folder:
    """Return the runs in a folder, and say on stderr which of its files cannot be read."""
    from profd.daemon.analyze.nodes import read_folder

    found = read_folder(folder)
    for why in found.left_out:
        say(f"left out: {why}")
    return found


@contextlib.contextmanager
def open_run(run: str, job: str | None) -> Iterator[RunReader]:
    """Give a reader of a run, or of a job in a folder.

    Raises NoSuchRun, RunUnreadable, MissingTool, UsageError.
    """
    with brought_here(run) as here:
        folder = folder_of(here, job)
        if folder is None:
            path = find_run(here)
            with bounded_memory(path), RunReader(path) as reader:
                if reader.info.state != "ended" and is_without_log(reader.path):
                    log = f"{reader.path.name}-wal"
                    say(
                        f"{reader.path} has no log beside it: if it was copied while live, its "
                        f"last part is in {log}"
                    )
                yield reader
            return
        from profd.daemon.analyze.nodes import open_job

        chosen = known_folder(folder).choose(job)
        with bounded_memory(*(file.path for file in chosen.files)), open_job(chosen) as reader:
            yield reader


def code_of(*readers: RunReader, says_why: bool = True) -> ExitCode:
    """Return the exit code of a command that shows runs: 77 if one has ended without a sample.

    It also prints why, for each such run, unless ``says_why`` is False because the output says it.
    """
    empty = [reader for reader in readers if reader.is_over_without_samples]
    if says_why and empty:
        from profd.daemon.render.summary import why_no_samples

        for reader in empty:
            name = f"{reader.info.id}: " if len(readers) > 1 else ""
            say(name + why_no_samples(reader))
    return ExitCode.NO_SAMPLES if empty else ExitCode.OK
