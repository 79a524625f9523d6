"""The folder where profd and a process leave files for each other, in what the process calls /tmp."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.errors import OutputUnwritable
from profd.daemon.windows.failure import WindowFailed


class Meeting(NamedTuple):
    """A private folder that profd and the process can both reach: as it is called here, and there."""

    here: Path
    there: Path


def sees_our_files(pid: int) -> bool:
    """Say whether a path means the same to a process as here, which it does not in a container; raises OSError."""
    proc, own = processes.PROC / str(pid), processes.PROC / "self"
    is_same_root = os.path.samestat((proc / "root").stat(), (own / "root").stat())
    return is_same_root and (proc / "ns/mnt").readlink() == (own / "ns/mnt").readlink()


@contextlib.contextmanager
def meeting(pid: int) -> Iterator[Meeting]:
    """Make a folder where a process can leave its window, and remove it in the end; raises ProfdError.

    It lies in what the process calls /tmp, which is not ours where that runs in a container, and belongs to its user.
    """
    proc = processes.PROC / str(pid)
    try:
        owner = proc.stat()
        is_ours = sees_our_files(pid)
    except OSError as error:
        raise WindowFailed(f"process {pid} cannot be looked at ({error.strerror})") from error
    try:
        here = Path(tempfile.mkdtemp(prefix="profd-window-", dir="/tmp" if is_ours else proc / "root/tmp"))
    except OSError as error:
        raise OutputUnwritable(f"no folder can be made in /tmp ({error.strerror})", "make room there") from error
    try:
        if owner.st_uid != os.geteuid():
            os.chown(here, owner.st_uid, owner.st_gid)
        yield Meeting(here, Path("/tmp") / here.name)
    finally:
        shutil.rmtree(here, ignore_errors=True)


def plain_file(path: Path) -> Path:
    """Return a path that is a file and no link: what is read with our rights is what the process wrote with its own."""
    try:
        is_plain = stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        is_plain = False
    if not is_plain:
        raise WindowFailed(f"the process left no {path.name}")
    return path
