"""Choose the file that a live run is written to, and move it to the requested place at the end."""

from __future__ import annotations

import os
from pathlib import Path

from profd.daemon import paths
from profd.daemon.paths import replacing
from profd.daemon.store import database

MOST_IN_MEMORY_BYTES = 256 << 20
"""The limit of a run that is written to memory.

Such a run counts toward the training run's own memory limit.
"""


class LiveFile:
    """The place of a run file while it is written: on a local disk, in a folder of profd's own.

    A link at the requested path points to it.

    ``most_bytes`` is how large the file may grow there, None if only its disk limits it.
    ``warning`` is a text for the user, or empty if there is nothing to warn of.
    """

    def __init__(self, wanted: Path) -> None:
        self.path = wanted
        self.most_bytes: int | None = None
        self.warning = ""
        self._wanted = wanted
        is_on_network = paths.is_on_network(wanted.parent)
        # SQLite opens a file and its logs by name, again and again. Whoever may put a link there
        # chooses the file.
        if is_on_network or paths.may_others_write(wanted.parent):
            folder = _local_folder()
            # Another run of this name may be live for another folder.
            name = f"{wanted.stem}-{os.urandom(4).hex()}{wanted.suffix}"
            self.path = paths.make_private(folder / f"profd-{os.getuid()}") / name
            if paths.is_in_memory(folder) and (
                is_on_network or not paths.is_in_memory(wanted.parent)
            ):
                self.most_bytes = MOST_IN_MEMORY_BYTES
                what = "is on a network" if is_on_network else "may be written by others"
                why = (
                    f"{wanted.parent} {what} and {folder} is on no disk: set TMPDIR to a folder "
                    "on a local disk"
                )
                self.warning = (
                    f"the run is written to memory, at most {MOST_IN_MEMORY_BYTES >> 20} MiB, as "
                    f"{why}"
                )
            try:
                wanted.symlink_to(self.path)
            except OSError as error:
                raise database.unwritable(wanted, error) from error

    def is_there(self) -> bool:
        """Return whether the file can still be found.

        It may be written for long after its folder was removed.
        """
        return self.path.exists()

    def settle(self) -> None:
        """Move the finished file to the requested path.

        Raises OutputUnwritable, and then leaves the file in its place.
        """
        if self.path == self._wanted:
            return
        from shutil import copyfileobj

        whole, copy = self.path, self.path.with_name(f".{self.path.name}.whole")
        try:
            # A reader keeps a part of the run in the log.
            if database.log_of(self.path).exists():
                whole = copy
                copy.unlink(missing_ok=True)
                database.copy_whole(self.path, copy)
            with whole.open("rb") as source, replacing(self._wanted) as moved:
                copyfileobj(source, moved, 1 << 20)
        except OSError as error:
            raise database.unwritable(self._wanted, error) from error
        database.remove(self.path)
        database.remove(copy)


def _local_folder() -> Path:
    """Return the folder for temporary files that suits a run best.

    It is on a disk of this machine, or else in its memory.
    """
    import tempfile

    # Clusters name a job's folder on a disk of its node in these variables.
    named = map(os.environ.get, ("SLURM_TMPDIR", "PBS_JOBFS", "LOCAL_SCRATCH"))
    folders = [Path(folder) for folder in (tempfile.gettempdir(), *named, "/var/tmp") if folder]
    local = [
        folder
        for folder in folders
        if os.access(folder, os.W_OK | os.X_OK) and not paths.is_on_network(folder)
    ]
    return min(local or folders[:1], key=paths.is_in_memory)
