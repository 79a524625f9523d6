"""What a thread waits in, by its native frames, as the table ``operations.toml`` says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

TABLE = Path(__file__).with_suffix(".toml")
_PLUMBING = re.compile(r"\(lib(c|pthread|stdc\+\+)[.-]")


class KnownOperation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One operation of the table, which explains the fields."""

    does: str
    frame: str
    source: str
    workers: str = ""
    idle: str = ""


class _OperationTable(msgspec.Struct, frozen=True):
    operation: tuple[KnownOperation, ...]


class NativeOperation(NamedTuple):
    """What a thread waits in, in words."""

    text: str
    entry: KnownOperation

    def waits_for(self, frames: Sequence[str]) -> bool:
        """Return whether it is another thread of the process, with these frames, that works."""
        works = self.entry.workers and any(re.search(self.entry.workers, one) for one in frames)
        return bool(works) and not re.search(self.entry.idle, innermost(frames))


def innermost(frames: Sequence[str]) -> str:
    """Return the innermost frame outside the libraries of C and C++; empty if there is none."""
    return next((one for one in frames if not _PLUMBING.search(one)), "")


def operation_in(frames: Sequence[str]) -> NativeOperation | None:
    """Return what a thread waits in; None if its frames say nothing of that."""
    for entry in entries():
        for frame in frames:
            if match := re.search(entry.frame, frame):
                return NativeOperation(entry.does.format(*match.groups()), entry)
    return None


@lru_cache(1)
def entries() -> tuple[KnownOperation, ...]:
    return msgspec.toml.decode(TABLE.read_bytes(), type=_OperationTable).operation
