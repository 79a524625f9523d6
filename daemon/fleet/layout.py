"""Where the files of a data set lie, and which columns they have; docs/fleet.md describes both for readers.

``<table>/date=…/job=…/node=…/rank=…/<run>-<export>.parquet``, and for each run ``manifests/<run>.json``, which names
its files: what no manifest names is not part of the data set. Knows no file system and no run file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from profd.daemon.clock import SECOND_NS

VERSION = 1
"""Rises when a column or a file changes its meaning; new columns may come without that."""
DAY_NS = 86_400 * SECOND_NS
MANIFESTS = "manifests"
NONE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, and with it every reader of such folders, writes for a value that is not known."""
TABLES: Mapping[str, Mapping[str, type]] = {
    "samples": {
        "run": str,
        "pid": int,
        "role": str,
        "thread": str,
        "is_main": bool,
        "minute_ns": int,
        "stack": int,
        "samples": int,
        "time_ns": int,
        "gpu_known_ns": int,
        "gpu_idle_ns": int,
    },
    "stacks": {
        "run": str,
        "stack": int,
        "phase": str,
        "function": str,
        "file": str,
        "line": int,
        "user_function": str,
        "user_file": str,
        "user_line": int,
        "path": str,
    },
    "series": {
        "run": str,
        "pid": int,
        "os_tid": int,
        "device": str,
        "name": str,
        "at_ns": int,
        "known_ns": int,
        "mean": float,
        "least": float,
        "most": float,
    },
    "steps": {"run": str, "pid": int, "at_ns": int, "duration_ns": int, "steps": float},
    "findings": {
        "run": str,
        "rule": str,
        "severity": str,
        "label": str,
        "title": str,
        "function": str,
        "file": str,
        "line": int,
        "gain_bound": float,
        "from_ns": int,
        "to_ns": int,
        "lost_ns": int,
        "gpu_lost_ns": int,
    },
    "runs": {
        "run": str,
        "pid": int,
        "id": str,
        "name": str,
        "host": str,
        "command": str,
        "profd": str,
        "state": str,
        "started_ns": int,
        "ended_ns": int,
        "lived_ns": int,
        "gpus": int,
        "gpu_model": str,
        "local_rank": int,
        "world_size": int,
    },
}
"""The columns of each table."""

_LONGEST = 120
_DIGEST = 16
_SAFE = "+@,"


class Partition(NamedTuple):
    """Which folder of a table a row belongs to."""

    date: str
    job: str
    node: str
    rank: int | None

    @property
    def path(self) -> str:
        """The folder, each value made safe."""
        rank = NONE if self.rank is None else str(self.rank)
        return f"date={self.date}/job={encoded(self.job)}/node={encoded(self.node)}/rank={rank}"


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a run; ``path`` is relative to the data set."""

    table: str
    path: str
    rows: int
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """A run in a data set: which files it consists of, and when it was."""

    version: int
    run: str
    started_ns: int
    ended_ns: int
    files: tuple[DataFile, ...]

    @property
    def samples(self) -> int:
        """How many rows of samples it has."""
        return sum(file.rows for file in self.files if file.table == "samples")

    def paths(self, table: str) -> list[str]:
        """Return the files of a table."""
        return [file.path for file in self.files if file.table == table and file.rows]


def encoded(text: str) -> str:
    """Return a text as one name in a path: percent-encoded as Hive's readers expect it, shortened by a digest."""
    if not text:
        return NONE
    name = _quoted(text)
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGEST]
    kept = text[:_LONGEST]
    while len(_quoted(kept)) + 1 + _DIGEST > _LONGEST:
        kept = kept[:-1]
    return f"{_quoted(kept)}~{digest}"


def _quoted(text: str) -> str:
    name = quote(text, safe=_SAFE, errors="replace")
    # A name that begins so is hidden from readers of such folders, or stands for what is not known.
    return f"%{ord(name[0]):02X}{name[1:]}" if name.startswith((".", "_")) else name


def date_of(at_ns: int) -> str:
    """Return the day of a time, in UTC."""
    return datetime.fromtimestamp(at_ns // DAY_NS * 86_400, timezone.utc).date().isoformat()


def is_inside(path: str) -> bool:
    """Say whether a path, as a manifest has it, is one of a file of the data set and nothing else."""
    parts = path.split("/")
    return parts[0] in TABLES and not {"", ".", ".."} & set(parts) and not set("*?[]{}\\") & set(path)
