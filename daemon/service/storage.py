"""The runs that the service keeps: their registry, their files, and what retention removes.

An entry is written before its session is started, and goes away with the last file of its run. Runs
without one belong to a person, and nothing here touches them.

Retention removes the detail of a run first and its report later; the report of an incident goes
last. It works within two folders alone, by their open descriptors: no link is followed, neither in
place of a folder nor of a file, and no name leaves them.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from profd.daemon import paths, processes
from profd.daemon.clock import HOUR_NS, Clock
from profd.daemon.errors import OutputUnwritable
from profd.daemon.paths import replacing
from profd.daemon.service.configuration import Retention
from profd.daemon.service.log import JsonLog
from profd.daemon.store.records import Identity

_RUN_ID = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9_.]+-[0-9a-f]{4}")
_AGED = "aged"  # an empty file whose time says when age last removed something


class Entry(msgspec.Struct, frozen=True):
    """A run that the supervisor began, of the job with this root.

    ``why_ended`` is that of the run file, ``interrupted`` if the session was cut off, empty while
    it is live. ``incident`` is from its report: findings worth a warning, hangs, a death.
    """

    run_id: str
    root: Identity
    member: int
    rule: str
    boot: str
    ended_ns: int = 0
    why_ended: str = ""
    is_reported: bool = False
    incident: str = ""

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine has run on since; else the PID is another process's."""
        return self.boot == boot_id()


class RunRegistry:
    """The entries of this user on this host."""

    def __init__(self, folder: Path) -> None:
        """Make ``folder``; raises OutputUnwritable."""
        paths.make_private(folder.parent)
        self._folder = paths.make_private(folder)

    def entries(self) -> list[Entry]:
        """Return the entries, the oldest first; a file that is none is left alone."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
                entry = msgspec.json.decode(path.read_bytes(), type=Entry)
                if entry.run_id == path.stem and _RUN_ID.fullmatch(entry.run_id):
                    found.append(entry)
        return found

    def put(self, entry: Entry) -> None:
        """Write an entry, whole or not at all; raises OutputUnwritable."""
        path = self._path(entry.run_id)
        try:
            with replacing(path) as file:
                file.write(msgspec.json.encode(entry))
        except OSError as error:
            what, remedy = f"cannot write {path}", "make room on its disk"
            raise OutputUnwritable.of_system(what, error, remedy) from error

    def remove(self, run_id: str) -> None:
        with contextlib.suppress(OSError):
            self._path(run_id).unlink(missing_ok=True)

    def aged_ns(self) -> int:
        """Return when age last removed something, by whichever supervisor; 0 if never."""
        try:
            return (self._folder / _AGED).stat().st_mtime_ns
        except OSError:
            return 0

    def note_aged(self, now_ns: int) -> None:
        with contextlib.suppress(OSError):
            (self._folder / _AGED).touch(mode=0o600)
            os.utime(self._folder / _AGED, ns=(now_ns, now_ns))

    def _path(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.json"


def register_folder() -> Path:
    """Return the folder of this host's entries: home folders may be those of many hosts."""
    return paths.runs_folder().parent / "daemon" / os.uname().nodename


def boot_id() -> str:
    """Return the kernel's id of this boot of the machine; empty if /proc does not show it."""
    return processes.read_text("/proc/sys/kernel/random/boot_id").strip()


RUN_FILES, REPORT_FILES = "detail", "report"


class Kept(NamedTuple):
    """The files of a run that has ended, in bytes."""

    run_id: str
    ended_ns: int
    is_incident: bool
    detail_bytes: int
    report_bytes: int


class Removal(NamedTuple):
    """A part of a run that is to be removed: RUN_FILES or REPORT_FILES."""

    run_id: str
    part: str


def removals(
    kept: Sequence[Kept],
    retention: Retention,
    now_ns: int,
    live_bytes: int = 0,
    most_old: int | None = None,
) -> list[Removal]:
    """Return the removals that are due, in order.

    ``live_bytes`` are those of live runs. At most ``most_old`` runs lose something for their age;
    None: any number.
    """
    oldest_first = sorted(kept, key=lambda one: one.ended_ns)
    old = [parts for one in oldest_first if (parts := list(_too_old(one, retention, now_ns)))]
    gone = [removal for parts in old[:most_old] for removal in parts]
    # In the order in which they are given up for room; sorting keeps the oldest first.
    sizes = {Removal(one.run_id, RUN_FILES): one.detail_bytes for one in oldest_first}
    for one in sorted(oldest_first, key=lambda one: one.is_incident):
        sizes[Removal(one.run_id, REPORT_FILES)] = one.report_bytes
    held = live_bytes + sum(size for part, size in sizes.items() if part not in gone)
    for part, size in sizes.items():
        if held <= retention.max_bytes:
            break
        if size and part not in gone:
            gone.append(part)
            held -= size
    return gone


def _too_old(one: Kept, retention: Retention, now_ns: int) -> Iterator[Removal]:
    hours = (now_ns - one.ended_ns) / HOUR_NS
    if one.detail_bytes and hours > retention.detail_hours:
        yield Removal(one.run_id, RUN_FILES)
    report_hours = retention.incident_hours if one.is_incident else retention.report_hours
    if one.report_bytes and hours > max(report_hours, retention.detail_hours):
        yield Removal(one.run_id, REPORT_FILES)


class RunStorage:
    """The folders of runs and of reports; ``part`` is RUN_FILES or REPORT_FILES."""

    def __init__(self, runs: Path, reports: Path) -> None:
        self._reports = reports
        # The first ending is the run file; the others are there while it is written, or where it
        # was cut off.
        logs = (f"{paths.SUFFIX}-wal", f"{paths.SUFFIX}-shm")
        run_endings = (paths.SUFFIX, *logs, paths.HANG_SUFFIX)
        self._parts = {RUN_FILES: (runs, run_endings), REPORT_FILES: (reports, (".html", ".json"))}

    def report_file(self, run_id: str, ending: str) -> Path:
        """Return the path of a run's report; its folder is made. Raises OutputUnwritable."""
        return paths.make_private(self._reports) / f"{run_id}{ending}"

    def size(self, part: str, run_id: str) -> int:
        """Return the bytes of a part on disk; 0 if nothing is left of it."""
        return sum(found.st_size for _, _, found in self._files(part, run_id))

    def written_ns(self, run_id: str) -> int:
        files = [*self._files(RUN_FILES, run_id), *self._files(REPORT_FILES, run_id)]
        return max((found.st_mtime_ns for _, _, found in files), default=0)

    def remove(self, part: str, run_id: str) -> None:
        for folder, name, _ in self._files(part, run_id):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)

    def _files(self, part: str, run_id: str) -> Iterator[tuple[int, str, os.stat_result]]:
        """Yield the plain files of a part, each by its open folder and name, with its status."""
        folder, endings = self._parts[part]
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            for name in (f"{run_id}{ending}" for ending in endings if os.sep not in run_id):
                with contextlib.suppress(OSError):
                    found = os.stat(name, dir_fd=opened, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode):
                        yield opened, name, found
        finally:
            os.close(opened)


@dataclass(frozen=True)
class RunRetention:
    """Removes what the retention does not keep of the supervisor's runs that have ended."""

    registry: RunRegistry
    storage: RunStorage
    log: JsonLog
    clock: Clock

    def apply(self, retention: Retention, in_use: Collection[str]) -> None:
        """Remove all that is not kept, but nothing of runs ``in_use`` (live, or being reported)."""
        size = self.storage.size
        entries = self.registry.entries()
        ended = [entry for entry in entries if entry.ended_ns and entry.run_id not in in_use]
        kept = []
        for entry in ended:
            sizes = size(RUN_FILES, entry.run_id), size(REPORT_FILES, entry.run_id)
            # A session that began before the clock was set right notes another age than its files.
            ended_ns = max(entry.ended_ns, self.storage.written_ns(entry.run_id))
            kept.append(Kept(entry.run_id, ended_ns, bool(entry.incident), *sizes))
        live = {entry.run_id for entry in entries} - {entry.run_id for entry in ended}
        live_bytes = sum(size(RUN_FILES, run_id) for run_id in live)
        # By the clock on the wall, which may have been set right since this one was made.
        now_ns = self.clock.now_ns() + self.clock.wall_jump_ns()
        # Age removes parts of at most a tenth of the runs in an hour, of one run at least: a
        # machine that boots with a clock of years ahead finds everything too old, and until that is
        # set right little is gone.
        is_too_soon = 0 <= now_ns - self.registry.aged_ns() < HOUR_NS
        most_old = 0 if is_too_soon else max(len(kept) // 10, 1)
        gone = removals(kept, retention, now_ns, live_bytes, most_old)
        if gone and most_old:
            self.registry.note_aged(now_ns)
        for run_id, part in gone:
            self.storage.remove(part, run_id)
            self.log.say("removed", f"the {part} was removed to keep to the retention", run=run_id)
        for entry in ended:
            if not size(RUN_FILES, entry.run_id) and not size(REPORT_FILES, entry.run_id):
                self.registry.remove(entry.run_id)
