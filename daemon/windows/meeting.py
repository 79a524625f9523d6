"""The folder where profd and a process leave files for each other, in what the process calls /tmp.

Everything in it is made and opened as the user of the process: what a process puts in the place of a file is no way to
what its user may not reach.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from profd.daemon import processes
from profd.daemon.errors import OutputUnwritable
from profd.daemon.userfiles import UserFiles, files_of
from profd.daemon.windows.failure import WindowFailed

_TMP = "/tmp"


class Meeting:
    """A folder that profd and the process can both reach; ``there`` is what the process calls it."""

    def __init__(self, files: UserFiles, there: Path) -> None:
        self.there = there
        self._files = files

    def has(self, name: str) -> bool:
        """Say whether a file is there."""
        return self._files.is_file(str(self.there / name))

    def read(self, name: str) -> bytes:
        """Return what is in a small file; raises WindowFailed where there is none."""
        with self.opened(name) as fd, os.fdopen(os.dup(fd), "rb") as file:
            return file.read()

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """Open a file and give its descriptor; raises WindowFailed where there is no plain file of that name."""
        fd = self._files.open(str(self.there / name))
        if fd is None:
            raise WindowFailed(f"the process left no {name}")
        try:
            yield fd
        finally:
            os.close(fd)

    def write(self, name: str, text: str) -> None:
        """Leave a file for the process; raises OutputUnwritable."""
        if not self._files.write(str(self.there / name), text.encode()):
            raise OutputUnwritable(f"{self.there / name} cannot be written", "make room there")

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._files.remove(str(self.there / name))


@contextlib.contextmanager
def meeting(pid: int) -> Iterator[Meeting]:
    """Make a folder where a process can leave its window, and remove it in the end; raises ProfdError.

    It lies in what the process calls /tmp, which is not ours where that runs in a container, and belongs to its user.
    """
    if not (processes.PROC / str(pid)).exists():
        raise WindowFailed(f"process {pid} cannot be looked at: it is gone")
    files = files_of(pid)
    name = files.make_folder(_TMP)
    if name is None:
        raise OutputUnwritable(f"no folder can be made in {_TMP} as the user of process {pid}", "make room there")
    there = Path(_TMP) / name
    try:
        yield Meeting(files, there)
    finally:
        files.remove(str(there))
