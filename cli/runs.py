"""Finds the runs that a command names.

A name is a file, an id, a PID, a folder with one file per node, or a URL of a file or folder.
"""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profd.cli.console import say
from profd.daemon import paths, processes
from profd.daemon.errors import RunUnreadable, UsageError
from profd.daemon.store.database import honest_size, is_without_log
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


def find_run(word: str) -> Path:
    """Return what ``paths.find_run`` does, but of ``latest`` the newest run that can be read.

    Says which newer ones cannot.
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
    """Return the folder that RUN is, None where it is a run.

    Raises UsageError where a job of a run is named.
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


_OWN_MEMORY_BYTES, _MEMORY_OF_A_BYTE = 192 << 20, 64
"""The memory that a command may take besides what it has already.

The first number is for the command itself, the second for each byte of its run files.
"""


_BOUNDED: list[int] = []


@contextlib.contextmanager
def bounded_memory(*files: Path) -> Iterator[None]:
    """Bound the memory of this process by the size of run files meanwhile.

    Raises RunUnreadable if it needs more.
    """
    before, own = (
        resource.getrlimit(resource.RLIMIT_DATA),
        _MEMORY_OF_A_BYTE * sum(map(honest_size, files)),
    )
    if _BOUNDED:  # by this function: of two runs
        own += before[0]
    else:
        taken = int(processes.status(os.getpid()).get("VmData", "0 kB").split()[0]) << 10
        own += taken + _OWN_MEMORY_BYTES
        own = own if before[0] == resource.RLIM_INFINITY else min(own, before[0])
    _BOUNDED.append(own)
    resource.setrlimit(resource.RLIMIT_DATA, (own, before[1]))
    try:
        yield
    except MemoryError:
        what = (
            f"{files[0]} takes more than {own >> 20} MiB of memory, which is more "
            "than its size "
            "accounts for"
        )
        raise RunUnreadable(
            what, "select a part of it: --from, --to, --rank; or raise `ulimit -d`"
        ) from None
    finally:
        _BOUNDED.pop()
        resource.setrlimit(resource.RLIMIT_DATA, before)


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
