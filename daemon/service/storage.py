"""The runs that the service keeps: their registry, their files, and what retention removes.

An entry is written before its session is started, and goes away with the last file of its run. Runs without one are a
person's own, and nothing here touches them.

Of a run its detail goes first and its report later; the report of an incident goes last. Pure.

Works within two folders alone, by their open descriptors: no link is followed, neither in place of a folder nor of a
file, and no name leaves them.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from profd.daemon import paths
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.errors import OutputUnwritable
from profd.daemon.paths import replacing
from profd.daemon.service.configuration import Retention
from profd.daemon.service.log import JsonLog
from profd.daemon.store.records import Identity

_RUN_ID = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9_.]+-[0-9a-f]{4}")
_AGED = "aged"
"""An empty file whose time says when runs were last looked at for their age."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Entry(msgspec.Struct, frozen=True):
    """A run that the supervisor began, of the job with this root.

    ``why_ended`` is that of the run file, ``interrupted`` where the session was cut off, empty while it is live.
    ``incident`` is what its report tells of: findings worth a warning, hangs, a death.
    """

    run_id: str
    root: Identity
    member: int
    rule: str
    boot: str
    begun_ns: int
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
        """Keep them in ``folder``, which is made; raises OutputUnwritable."""
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
            raise OutputUnwritable(f"cannot write {path} ({error.strerror})", "make room on its disk") from error

    def remove(self, run_id: str) -> None:
        """Forget a run."""
        with contextlib.suppress(OSError):
            self._path(run_id).unlink(missing_ok=True)

    def aged_ns(self) -> int:
        """Return when runs were last looked at for their age, by whichever supervisor; 0 where never."""
        try:
            return (self._folder / _AGED).stat().st_mtime_ns
        except OSError:
            return 0

    def note_aged(self, now_ns: int) -> None:
        """Note that runs are looked at for their age, for supervisors to come."""
        with contextlib.suppress(OSError):
            (self._folder / _AGED).touch(mode=0o600)
            os.utime(self._folder / _AGED, ns=(now_ns, now_ns))

    def _path(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.json"


def register_folder() -> Path:
    """Return where the entries of this host lie: home folders may be those of many hosts."""
    return paths.runs_folder().parent / "daemon" / os.uname().nodename


def boot_id() -> str:
    """Return what tells this boot of the machine from all others."""
    return _BOOT.read_text().strip()


RUN_FILES, REPORT_FILES = "detail", "report"
_HOUR_NS = 3600 * SECOND_NS


class Kept(msgspec.Struct, frozen=True):
    """What is left of a run that has ended, in bytes."""

    run_id: str
    ended_ns: int
    is_incident: bool
    detail_bytes: int
    report_bytes: int


class Removal(msgspec.Struct, frozen=True):
    """A part of a run that is to be removed: DETAIL or REPORT."""

    run_id: str
    part: str


def removals(
    kept: Sequence[Kept], retention: Retention, now_ns: int, live_bytes: int = 0, most_old: int | None = None
) -> list[Removal]:
    """Return what is to be removed, in this order.

    ``live_bytes`` are those of runs that are still written; ``most_old`` is of how many runs something may go for their
    age, of all where it is None.
    """
    oldest_first = sorted(kept, key=lambda one: one.ended_ns)
    old = [parts for one in oldest_first if (parts := list(_too_old(one, retention, now_ns)))]
    gone = [removal for parts in old[:most_old] for removal in parts]
    sizes = {Removal(one.run_id, RUN_FILES): one.detail_bytes for one in oldest_first}
    sizes |= {Removal(one.run_id, REPORT_FILES): one.report_bytes for one in oldest_first}
    held = live_bytes + sum(size for part, size in sizes.items() if part not in gone)
    for part in _in_order(oldest_first):
        if held <= retention.max_bytes:
            break
        if sizes[part] and part not in gone:
            gone.append(part)
            held -= sizes[part]
    return gone


def _too_old(one: Kept, retention: Retention, now_ns: int) -> Iterator[Removal]:
    hours = (now_ns - one.ended_ns) / _HOUR_NS
    if one.detail_bytes and hours > retention.detail_hours:
        yield Removal(one.run_id, RUN_FILES)
    report_hours = retention.incident_hours if one.is_incident else retention.report_hours
    if one.report_bytes and hours > max(report_hours, retention.detail_hours):
        yield Removal(one.run_id, REPORT_FILES)


def _in_order(oldest_first: Sequence[Kept]) -> Iterator[Removal]:
    """Yield all parts in the order in which they are given up."""
    yield from (Removal(one.run_id, RUN_FILES) for one in oldest_first)
    yield from (Removal(one.run_id, REPORT_FILES) for one in oldest_first if not one.is_incident)
    yield from (Removal(one.run_id, REPORT_FILES) for one in oldest_first if one.is_incident)


RUN_FILE_ENDINGS = (paths.SUFFIX, f"{paths.SUFFIX}-wal", f"{paths.SUFFIX}-shm")
"""How the files of a run itself end; the first holds it, the others are there while it is written or was cut off."""
REPORT_ENDINGS = (".html", ".json")


class RunStorage:
    """The folders of runs and of reports."""

    def __init__(self, runs: Path, reports: Path) -> None:
        self._runs = runs
        self._reports = reports

    def report_file(self, run_id: str, ending: str) -> Path:
        """Return where a part of a run's report belongs; its folder is made. Raises OutputUnwritable."""
        return paths.make_private(self._reports) / f"{run_id}{ending}"

    def detail_bytes(self, run_id: str) -> int:
        """Return what a run takes on disk; 0 where nothing is left of it."""
        return _size(self._runs, run_id, RUN_FILE_ENDINGS)

    def report_bytes(self, run_id: str) -> int:
        """Return what the report of a run takes on disk."""
        return _size(self._reports, run_id, REPORT_ENDINGS)

    def written_ns(self, run_id: str) -> int:
        """Return when something was last written of a run or its report; 0 where nothing is left of it."""
        return max(
            _written_ns(self._runs, run_id, RUN_FILE_ENDINGS), _written_ns(self._reports, run_id, REPORT_ENDINGS)
        )

    def remove_detail(self, run_id: str) -> None:
        """Remove a run's file; what is a link is left alone."""
        _remove(self._runs, run_id, RUN_FILE_ENDINGS)

    def remove_report(self, run_id: str) -> None:
        """Remove the report of a run; what is a link is left alone."""
        _remove(self._reports, run_id, REPORT_ENDINGS)


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


AGED_EVERY_NS = 3600 * SECOND_NS
AGED_SHARE = 0.1
"""Of the runs that are kept so many at most, and one at least, lose something for their age in that time.

A machine that boots with a clock of years ahead finds everything too old; until that is set right little is gone.
"""


class RunRetention:
    """The runs of the supervisor that have ended."""

    def __init__(self, register: RunRegistry, shelf: RunStorage, journal: JsonLog, clock: Clock) -> None:
        self._register = register
        self._shelf = shelf
        self._journal = journal
        self._clock = clock

    def thin(self, retention: Retention, in_use: Collection[str]) -> None:
        """Remove what the retention does not keep; of the runs ``in_use`` (live, or being reported) nothing."""
        entries = self._register.entries()
        ended = [entry for entry in entries if entry.ended_ns and entry.run_id not in in_use]
        kept = [self._kept(entry) for entry in ended]
        live = {entry.run_id for entry in entries} - {entry.run_id for entry in ended}
        live_bytes = sum(map(self._shelf.detail_bytes, live))
        # By the clock on the wall, which may have been set right since this one was made.
        now_ns = self._clock.now_ns() + self._clock.wall_jump_ns()
        most_old = self._most_old(len(kept), now_ns)
        gone = removals(kept, retention, now_ns, live_bytes, most_old)
        if gone and most_old:
            self._register.note_aged(now_ns)
        for removal in gone:
            if removal.part == RUN_FILES:
                self._shelf.remove_detail(removal.run_id)
            else:
                self._shelf.remove_report(removal.run_id)
            self._journal.say("removed", f"the {removal.part} was removed to keep to the retention", run=removal.run_id)
        for entry in ended:
            if not self._shelf.detail_bytes(entry.run_id) and not self._shelf.report_bytes(entry.run_id):
                self._register.remove(entry.run_id)

    def _most_old(self, kept: int, now_ns: int) -> int:
        """Return of how many runs something may go for their age now."""
        if 0 <= now_ns - self._register.aged_ns() < AGED_EVERY_NS:
            return 0
        return max(int(AGED_SHARE * kept), 1)

    def _kept(self, entry: Entry) -> Kept:
        run_id = entry.run_id
        return Kept(
            run_id=run_id,
            # A session that began before the clock was set right tells of another age than its files.
            ended_ns=max(entry.ended_ns, self._shelf.written_ns(run_id)),
            is_incident=bool(entry.incident),
            detail_bytes=self._shelf.detail_bytes(run_id),
            report_bytes=self._shelf.report_bytes(run_id),
        )
