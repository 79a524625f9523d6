"""The files that are kept of the supervisor's runs: how large they are, and their removal.

Works within two folders alone, by their open descriptors: no link is followed, neither in place of a folder nor of a
file, and no name leaves them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from profd.daemon import paths

DETAIL = (paths.SUFFIX, f"{paths.SUFFIX}-wal", f"{paths.SUFFIX}-shm")
"""How the files of a run itself end; the first holds it, the others are there while it is written or was cut off."""
REPORT = (".html", ".json")


class Shelf:
    """The folders of runs and of reports."""

    def __init__(self, runs: Path, reports: Path) -> None:
        self._runs = runs
        self._reports = reports

    def report_file(self, run_id: str, ending: str) -> Path:
        """Return where a part of a run's report belongs; its folder is made. Raises OutputUnwritable."""
        return paths.make_private(self._reports) / f"{run_id}{ending}"

    def detail_bytes(self, run_id: str) -> int:
        """Return what a run takes on disk; 0 where nothing is left of it."""
        return _size(self._runs, run_id, DETAIL)

    def report_bytes(self, run_id: str) -> int:
        """Return what the report of a run takes on disk."""
        return _size(self._reports, run_id, REPORT)

    def written_ns(self, run_id: str) -> int:
        """Return when something was last written of a run or its report; 0 where nothing is left of it."""
        return max(_written_ns(self._runs, run_id, DETAIL), _written_ns(self._reports, run_id, REPORT))

    def remove_detail(self, run_id: str) -> None:
        """Remove a run's file; what is a link is left alone."""
        _remove(self._runs, run_id, DETAIL)

    def remove_report(self, run_id: str) -> None:
        """Remove the report of a run; what is a link is left alone."""
        _remove(self._reports, run_id, REPORT)


def _size(folder: Path, run_id: str, endings: tuple[str, ...]) -> int:
    return sum(found.st_size for found in _files(folder, run_id, endings))


def _written_ns(folder: Path, run_id: str, endings: tuple[str, ...]) -> int:
    return max((found.st_mtime_ns for found in _files(folder, run_id, endings)), default=0)


def _files(folder: Path, run_id: str, endings: tuple[str, ...]) -> list[os.stat_result]:
    with _opened(folder) as descriptor:
        return [found for ending in endings if (found := _plain_file(f"{run_id}{ending}", descriptor)) is not None]


def _remove(folder: Path, run_id: str, endings: tuple[str, ...]) -> None:
    with _opened(folder) as descriptor:
        for name in (f"{run_id}{ending}" for ending in endings):
            if _plain_file(name, descriptor) is not None:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=descriptor)


def _plain_file(name: str, folder: int | None) -> os.stat_result | None:
    """Return what is known of a plain file in a folder; None where it is none, or not there."""
    if folder is None or os.sep in name:
        return None
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """Open a folder; None where it is a link, or not there."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)
