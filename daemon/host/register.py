"""What the supervisor has begun: one small file a run, so that whoever comes after it knows what is its own.

An entry is written before its session is started, and goes away with the last file of its run. Runs without one are a
person's own, and nothing here touches them.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import msgspec

from profd.daemon import paths
from profd.daemon.errors import OutputUnwritable
from profd.daemon.privatefile import replacing
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


class Register:
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
