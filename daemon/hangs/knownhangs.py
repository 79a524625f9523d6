"""Versions that are known to hang, by the table ``knownhangs.toml``, and those of a process."""

from __future__ import annotations

import contextlib
import platform
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from profd.daemon import processes
from profd.daemon.collectives import ras
from profd.daemon.userfiles import Unanswered, files_of

TABLE = Path(__file__).with_suffix(".toml")
_DRIVER = "/sys/module/nvidia/version"
_TORCH = re.compile(r"libtorch_cpu\.so$")
_TORCH_VERSION = re.compile(rb"^__version__ = '([^']+)'", re.MULTILINE)


class KnownHang(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"since": "from"}):
    """One entry of the table, which explains the fields."""

    of: str
    below: str
    hangs: str
    helps: str
    source: str
    since: str = "0"
    machine: str = ""
    frame: str = ""

    def is_of(self, version: str, machine: str) -> bool:
        is_affected = _numbers(self.since) <= _numbers(version) < _numbers(self.below)
        return is_affected and self.machine in ("", machine)


class _KnownHangs(msgspec.Struct, frozen=True):
    known: tuple[KnownHang, ...]


def versions_of(pid: int | None = None) -> dict[str, str]:
    """Return what is known of the versions that the table asks for, by their names there.

    Without a process that is the driver's.
    """
    found = {"NVIDIA driver": processes.read_text(_DRIVER).strip()}
    if pid is not None:
        nccl = ras.version_of(*ras.library_of([pid]))
        found["NCCL"] = ".".join(map(str, nccl or ()))
        found["torch"] = _torch_version(pid)
        found["Python"] = processes.python_version(pid) or ""
    return {name: version for name, version in found.items() if version}


def known_hangs(versions: Mapping[str, str], frames: Iterable[str] | None = None) -> list[str]:
    """Return what is known of hangs of these versions, a sentence each.

    Takes the frames of a hang, each ``function file``; without them, all entries count.
    """
    text = None if frames is None else "\n".join(frames)
    found = (one for one in entries() if one.is_of(versions.get(one.of, ""), platform.machine()))
    return [
        f"{it.of} {versions[it.of]} is known to hang: {it.hangs}; {it.helps} helps: {it.source}"
        for it in found
        if text is None or it.frame in text
    ]


@lru_cache(1)
def entries() -> tuple[KnownHang, ...]:
    return msgspec.toml.decode(TABLE.read_bytes(), type=_KnownHangs).known


def _torch_version(pid: int) -> str:
    """Return the version of the torch that a process has loaded; empty if that is unknown."""
    folder = ras.library_of([pid], _TORCH)[1].rpartition("/lib/")[0]
    with contextlib.suppress(OSError, Unanswered):
        if match := _TORCH_VERSION.search(files_of(pid).read(f"{folder}/version.py")):
            return match[1].decode()
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version but those of its build; none if it is unknown."""
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))
