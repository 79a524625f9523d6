"""An open run file: rows of its tables, each checked for its types, and the facts of the run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.rows import Count, RunInfo

Row = TypeVar("Row", bound=msgspec.Struct)
_AS_STORED: dict[object, object] = {bool: int, tuple[str, ...]: str}
"""A truth value is an integer in the file, and a list of words is JSON."""


def checked(row: type[Row], values: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return what was read for rows of this type as it is; raises msgspec.ValidationError where a type is wrong."""
    rows: list[tuple[Any, ...]] = msgspec.convert(list(values), _columns_of(row))
    return rows


@functools.cache
def _columns_of(row: type[msgspec.Struct]) -> Any:  # noqa: ANN401  a type made at run time
    hints = get_type_hints(row, include_extras=True)
    columns = tuple(_AS_STORED.get(hints[name], hints[name]) for name in row.__struct_fields__)
    return list[tuple[columns]]  # type: ignore[valid-type]


class RunFile:
    """A run file, open for reading.

    Every method raises RunUnreadable where the file turns out to be damaged.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``; raises RunUnreadable where it is no readable run file."""
        self.path = path
        self._connection = database.open_readonly(path)
        self._data_version: int | None = None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def changed(self) -> bool:
        """Say whether anything was committed since this was last asked; True at first. Costs a look at the log."""
        version = self.version()
        seen, self._data_version = self._data_version, version
        return version != seen

    def version(self) -> int:
        """Return a number that is another one after anything was committed by others."""
        return int(self._query("PRAGMA data_version")[0][0])

    def meta(self) -> dict[str, Any]:
        """Return what the file says of the run as a whole, by name."""
        return dict(self._query("SELECT name, value FROM meta"))

    def newest_id(self, table: str) -> int:
        """Return the highest id of a table, 0 where it is empty."""
        return int(self.select(_Id, f"SELECT coalesce(max(id), 0) FROM {table}")[0][0])

    def has_table(self, name: str) -> bool:
        """Say whether the file has a table: an older one may lack it."""
        return bool(self._query("SELECT 1 FROM sqlite_master WHERE name = ?", name))

    def select(self, row: type[msgspec.Struct], sql: str, *values: int | str, **named: int) -> list[tuple[Any, ...]]:
        """Return what a query gives for rows of this type; raises RunUnreadable where a value is of another type."""
        with database.reading(self.path):
            return checked(row, self._query(sql, *values, **named))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Read the file as it is now until the end, whatever is written meanwhile."""
        with database.reading(self.path):
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.rollback()

    def _query(self, sql: str, *values: int | str, **named: int) -> list[tuple[Any, ...]]:
        with database.reading(self.path):
            return self._connection.rows(sql, named or values)


class _Id(msgspec.Struct, frozen=True):
    id: Count


def columns_of(row: type[msgspec.Struct]) -> str:
    """Return the columns of a table whose rows have the fields of ``row``, as SQL."""
    return ", ".join(row.__struct_fields__)


def time_range(column: str, from_ns: int | None, to_ns: int | None) -> tuple[str, list[int]]:
    """Return a condition on a column of times, as SQL, and its values."""
    conditions: list[str] = ["1"]
    values: list[int] = []
    if from_ns is not None:
        conditions.append(f"{column} >= ?")
        values.append(from_ns)
    if to_ns is not None:
        conditions.append(f"{column} < ?")
        values.append(to_ns)
    return " AND ".join(conditions), values


_LONGEST_NS = 10 * 366 * 86400 * SECOND_NS
_STARTED_FIELDS = ("id", "name", "mode", "cwd", "host", "user", "started_ns", "control_socket")
_ANALYSIS_FIELDS = ("analyzed_ns", "analysis_lost_ns", "findings_made_by")
_STARTED_AS_JSON: dict[str, Any] = {
    "target": tuple[int, int],
    "recorder": tuple[int, int],
    "command": tuple[str, ...],
    "versions": dict[str, str],
    "options": dict[str, int | float | bool | str | None],
}


def run_info(path: Path, meta: Mapping[str, Any]) -> RunInfo:
    """Return the run of a file whose table ``meta`` says this; raises RunUnreadable where it is damaged."""
    if not meta.keys() >= {*_STARTED_FIELDS, *_STARTED_AS_JSON, "state", "written_ns"}:
        raise database.unreadable(path, "its first records are missing")
    with database.reading(path):
        info = msgspec.convert(_values(meta), RunInfo)
    if not info.started_ns <= info.end_ns <= info.started_ns + _LONGEST_NS:
        raise database.unreadable(path, "it ends before it starts, or ten years later")
    return info


def _values(meta: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields of a run; raises msgspec.DecodeError where one is no JSON of its type."""
    target, recorder, command, versions, options = (
        msgspec.json.decode(str(meta[name]), type=kind) for name, kind in _STARTED_AS_JSON.items()
    )
    return dict(
        **{name: meta[name] for name in _STARTED_FIELDS},
        pid=target[0],
        start_ticks=target[1],
        command=command,
        state=_state(meta["state"], recorder),
        end_ns=meta.get("ended_ns") or meta["written_ns"],
        why_ended=meta.get("why_ended"),
        exit_code=meta.get("exit_code"),
        exit_signal=meta.get("exit_signal"),
        recorder=recorder,
        versions=versions,
        options=options,
        **{name: meta.get(name) for name in _ANALYSIS_FIELDS},
    )


def _state(stored: str, recorder: tuple[int, int]) -> str:
    """Return the state of a run: one that is called live is none without its recorder."""
    return "interrupted" if stored == "live" and not processes.is_running(*recorder) else stored
