"""Where a run is written while it is live, and how it gets to where it was asked for."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from profd.daemon import paths
from profd.daemon.store import database


class LiveFile:
    """The place of a run file that is being written: a local disk, linked from where the run will end up."""

    def __init__(self, wanted: Path) -> None:
        """Choose the place; raises OutputUnwritable where nothing can be put at ``wanted``."""
        self.path = wanted
        self._wanted = wanted
        if paths.is_on_network(wanted.parent):
            self.path = paths.make_private(Path(tempfile.gettempdir()) / f"profd-{os.getuid()}") / wanted.name
            try:
                wanted.symlink_to(self.path)
            except OSError as error:
                raise database.unwritable(wanted, error) from error

    def is_there(self) -> bool:
        """Say whether the file can still be found: it may be written for long after its folder was removed."""
        return self.path.exists()

    def settle(self) -> None:
        """Move the finished file to where it was asked for.

        Raises OutputUnwritable; the run then stays where it is, and the link to it with it.
        """
        if self.path == self._wanted:
            return
        moving = self._wanted.with_name(f".{self._wanted.name}.moving")
        try:
            shutil.move(self._whole(), moving)
            moving.replace(self._wanted)
        except OSError as error:
            moving.unlink(missing_ok=True)
            raise database.unwritable(self._wanted, error) from error
        for name in (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm", _copy_name(self.path)):
            self.path.with_name(name).unlink(missing_ok=True)

    def _whole(self) -> Path:
        """Return a file that holds all of the run: a copy where someone who reads keeps a part of it in the log."""
        if not self.path.with_name(f"{self.path.name}-wal").exists():
            return self.path
        whole = self.path.with_name(_copy_name(self.path))
        whole.unlink(missing_ok=True)
        database.copy_whole(self.path, whole)
        return whole


def _copy_name(path: Path) -> str:
    return f".{path.name}.whole"
