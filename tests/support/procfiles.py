"""Files of /proc and of control groups with the contents that a test gives them."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from profd.daemon import processes
from profd.daemon.machine.collector import CounterSource
from profd.daemon.machine.machine import Watched
from profd.daemon.store.records import EventHappened, Identity, Point

FIELDS = {
    "state": 0,
    "minor_faults": 7,
    "major_faults": 9,
    "user_ticks": 11,
    "system_ticks": 12,
    "threads": 17,
    "start": 19,
    "rss_pages": 21,
}
"""Where the fields of a stat stand behind the name."""
TARGET = Identity(2**22 + 77, 5000)  # above every real PID


class ProcFiles:
    """Stands in for the file system below ``procfile.read``: what has no contents is not there."""

    def __init__(self, contents: dict[str, str] | None = None) -> None:
        self.contents = dict(contents or {})

    def write(self, name: str, text: str) -> None:
        """Give a file of /proc contents that psutil reads, too."""
        self.contents[f"/proc/{name}"] = text
        Path(psutil.PROCFS_PATH, name).write_text(text)

    def read(self, path: str) -> bytes | None:
        """Return what a file was given."""
        text = self.contents.get(path)
        return None if text is None else text.encode()

    def run(
        self, identity: Identity = TARGET, os_tid: int | None = None, **fields: int | str
    ) -> None:
        """Let a process, or a thread of it, be there; ``fields`` are those of ``FIELDS``."""
        words = ["S"] + ["0"] * 49
        for name, value in {"start": identity.start_ticks, **fields}.items():
            words[FIELDS[name]] = str(value)
        below = f"{identity.pid}/task/{os_tid}" if os_tid else f"{identity.pid}"
        self.contents[f"/proc/{below}/stat"] = f"{identity.pid} (a b) c) {' '.join(words)}\n"


class BlockedSource:
    """Hangs in its first reading until ``released`` is set."""

    interval_s = 1.0

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()

    def read(self, watched: Watched) -> list[Point | EventHappened]:
        """Wait, then tell a point."""
        self.entered.set()
        assert self.released.wait(30)
        return [Point("slow", 1.0)]


def files_of(monkeypatch: pytest.MonkeyPatch, contents: dict[str, str] | None = None) -> ProcFiles:
    """Put files in the place of the real ones."""
    made = ProcFiles(contents)
    monkeypatch.setattr(processes, "read", made.read)
    return made


def read(
    source: CounterSource,
    *identities: Identity,
    threads: dict[Identity, frozenset[int]] | None = None,
) -> list[Point]:
    """Return the points of one reading."""
    found = source.read(Watched(identities, threads or {}))
    return [point for point in found if isinstance(point, Point)]


def values(points: list[Point]) -> dict[str, float]:
    """Return the values of points by name, with the device where there is one."""
    return {
        f"{point.name}@{point.device}" if point.device else point.name: point.value
        for point in points
    }
