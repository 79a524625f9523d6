"""Finds the runs that a command names: a file, an id, a PID, a folder with one file per node, or a URL of either."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profd.cli.console import say
from profd.daemon import paths
from profd.daemon.errors import UsageError
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    from profd.daemon.analyze.nodes import Folder


@contextlib.contextmanager
def brought_here(run: str) -> Iterator[str]:
    """Give RUN, of a URL the path of a copy; raises RunUnreadable, MissingTool or UsageError."""
    if "://" not in run:
        yield run
        return
    from profd.daemon.store.remote import fetch

    with tempfile.TemporaryDirectory(prefix="profd-") as folder:
        into = Path(folder) / paths.clean_name(run.rstrip("/").rpartition("/")[2])
        into.mkdir()
        yield os.fspath(fetch(run, into))


def folder_of(run: str, job: str | None) -> Path | None:
    """Return the folder that RUN is, None where it is a run; raises UsageError where a job of a run is named."""
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
    """Give a reader of a run, or of a job in a folder; raises NoSuchRun, RunUnreadable, MissingTool, UsageError."""
    with brought_here(run) as here:
        folder = folder_of(here, job)
        if folder is None:
            with RunReader(paths.find_run(here)) as reader:
                yield reader
            return
        from profd.daemon.analyze.nodes import open_job

        with open_job(known_folder(folder).choose(job)) as reader:
            yield reader
