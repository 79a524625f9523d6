"""What RUN means where it may also be a folder of run files, one of each node of a job, or a URL of either."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from profd.cli.output import say
from profd.daemon import paths
from profd.daemon.errors import UsageError

if TYPE_CHECKING:
    from profd.daemon.analyze.nodes.jobs import Folder
    from profd.daemon.store.reader import RunReader

_MARK = "://"

Command = TypeVar("Command", bound=Callable[..., Any])


def job_option(command: Command) -> Command:
    """Give a command ``--job``; it arrives as ``job: str | None``."""
    return click.option("--job", metavar="NAME", help="Where RUN is a folder of several jobs: which of them.")(command)


@contextlib.contextmanager
def brought_here(run: str) -> Iterator[str]:
    """Give RUN as a path, or whatever else names a run: what a URL names is copied to a folder for as long.

    Raises RunUnreadable, MissingTool, and UsageError where nothing can be read by such a URL.
    """
    if _MARK not in run:
        yield run
        return
    from profd.daemon.store.remote import fetch

    with tempfile.TemporaryDirectory(prefix="profd-") as folder:
        into = Path(folder) / paths.clean_name(run.rstrip("/").rpartition("/")[2])
        into.mkdir()
        yield os.fspath(fetch(run, into))


def folder_of(run: str, job: str | None) -> Path | None:
    """Return the folder that RUN is; None where it is a run, of which no job can be chosen: raises UsageError."""
    path = Path(run)
    is_path = os.sep in run or run in (os.curdir, os.pardir)
    is_folder = os.path.isdir(path)  # noqa: PTH112  Path raises for a folder that is not ours
    if is_folder and (is_path or any(path.glob(f"*{paths.SUFFIX}"))):
        return path
    if job is not None:
        raise UsageError(f"{run} is a run and no folder", "leave --job away")
    return None


def known_folder(folder: Path) -> Folder:
    """Return what a folder holds, and say on stderr which of its files cannot be read."""
    from profd.daemon.analyze.nodes.jobs import read_folder

    found = read_folder(folder)
    for why in found.left_out:
        say(f"left out: {why}")
    return found


def files_of(run: str, job: str | None) -> list[Path]:
    """Return the file of a run, or those of all nodes of a job where RUN is a folder; says nothing on stderr.

    Raises what ``open_run`` does.
    """
    from profd.daemon.analyze.nodes.jobs import read_folder

    folder = folder_of(run, job)
    return [paths.find_run(run)] if folder is None else [file.path for file in read_folder(folder).choose(job).files]


@contextlib.contextmanager
def open_run(run: str, job: str | None) -> Iterator[RunReader]:
    """Give a reader of a run, or of all nodes of a job where RUN is a folder.

    Raises NoSuchRun, RunUnreadable, MissingTool, and UsageError where a folder holds several jobs and none is named.
    """
    from profd.daemon.store.reader import RunReader

    with brought_here(run) as here:
        folder = folder_of(here, job)
        if folder is not None:
            from profd.daemon.analyze.nodes.joined import open_job

            with open_job(known_folder(folder).choose(job)) as reader:
                yield reader
            return
        with RunReader(paths.find_run(here)) as reader:
            yield reader
