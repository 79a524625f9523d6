"""An open run file: rows of its tables, each checked for its types, and the facts of the run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.records import Count, HangReport, RunStarted
from profd.daemon.store.rows import RunInfo

Row = TypeVar("Row", bound=msgspec.Struct)
Kind = TypeVar("Kind", bound=tuple[Any, ...])
_AS_STORED: dict[object, object] = {bool: int, tuple[str, ...]: str, HangReport: str}
"""How the file stores types that SQLite lacks: a truth value as an integer, all else as JSON."""
_LATER_TABLES = frozenset(
    {
        "device",
        "finding",
        "gap",
        "hang",
        "host_gap",
        "placement",
        "point_minute",
        "summed_process",
        "window",
        "window_gpu",
        "window_stream",
        "window_wait",
    }
)
"""The tables that an older file may lack; reading one then gives no rows."""


@functools.cache
def _columns(row: type[msgspec.Struct]) -> tuple[Any, dict[int, Callable[[Any], object]]]:
    """Return the type of a stored row, and by column the conversions to fields."""
    hints = get_type_hints(row, include_extras=True)
    fields = [hints[name] for name in row.__struct_fields__]
    stored = tuple(_AS_STORED.get(field, field) for field in fields)
    turned = {
        place: bool if field is bool else msgspec.json.Decoder(field).decode
        for place, field in enumerate(fields)
        if field in _AS_STORED
    }
    return tuple[stored], turned  # type: ignore[valid-type]


class RunFile:
    """A run file, open for reading.

    Every method raises RunUnreadable if the file turns out to be damaged.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``; raises RunUnreadable if it is no readable run file."""
        self.path = path
        self._connection = database.open_readonly(path)

    def close(self) -> None:
        self._connection.close()

    def version(self) -> int:
        """Return a number that changes whenever another connection commits.

        Costs a look at the log.
        """
        return int(self._query("PRAGMA data_version")[0][0])

    def newest_id(self, table: str) -> int:
        """Return the highest id of a table, 0 if it is empty."""
        return int(self.value(Count, f"SELECT coalesce(max(id), 0) FROM {table}"))

    def has_table(self, name: str) -> bool:
        return bool(self._query("SELECT 1 FROM sqlite_master WHERE name = ?", name))

    def value(self, kind: Any, sql: str, *values: float | str) -> Any:  # noqa: ANN401  of the type that is asked for
        """Return the one value of a query, None if it returns no row."""
        found = self._query(sql, *values)
        with database.reading(self.path):
            return msgspec.convert(found[0][0] if found else None, kind)

    def select(
        self, kind: type[Kind], sql: str, *values: int | str | None, **named: int
    ) -> list[Kind]:
        """Return the rows of a query, as tuples of this type."""
        with database.reading(self.path):
            found: list[Kind] = msgspec.convert(self._query(sql, *values, **named), list[kind])  # type: ignore[valid-type]
            return found

    def fetch(self, row: type[Row], sql: str, *values: int | str | None, **named: int) -> list[Row]:
        columns, turned = _columns(row)
        found = [list(one) for one in self.select(columns, sql, *values, **named)]
        with database.reading(self.path):
            for place, turn in turned.items():
                for one in found:
                    one[place] = turn(one[place])
        return [row(*one) for one in found]

    def fetch_from(
        self, table: str, row: type[Row], rest: str = "1", *values: int | str | None
    ) -> list[Row]:
        """Return the rows of a table whose columns are the encoded fields of ``row``.

        ``rest`` follows WHERE.
        """
        if table in _LATER_TABLES and not self.has_table(table):
            return []
        return self.fetch(
            row,
            f"SELECT {', '.join(row.__struct_encode_fields__)} FROM {table} WHERE {rest}",
            *values,
        )

    def run_info(self) -> RunInfo:
        meta = dict(self._query("SELECT name, value FROM meta"))
        if not meta.keys() >= _STARTED_FIELDS:
            raise database.unreadable(self.path, "its first records are missing")
        with database.reading(self.path):
            info = _run_info(meta)
        if not info.started_ns <= info.end_ns <= info.started_ns + _LONGEST_NS:
            raise database.unreadable(self.path, "it ends before it starts, or ten years later")
        return info

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Read the file as it is now until the end of the block, whatever is written meanwhile."""
        with database.reading(self.path):
            if self._connection.in_transaction:  # without memory, even the rollback had failed
                self._connection.rollback()
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            with database.reading(self.path):
                self._connection.rollback()

    def _query(self, sql: str, *values: float | str | None, **named: int) -> list[tuple[Any, ...]]:
        with database.reading(self.path):
            return self._connection.rows(sql, named or values)


_LONGEST_NS = 10 * 366 * 86400 * SECOND_NS
_JSON_FACTS = ("target", "command", "recorder", "versions", "options")
_STARTED_FIELDS = {*RunStarted.__struct_fields__, "state", "written_ns"}


def _run_info(meta: Mapping[str, Any]) -> RunInfo:
    """Return the facts of a run from its table ``meta``.

    Raises msgspec.DecodeError or ValidationError if a type is wrong.
    """
    values: dict[str, Any] = {name: meta.get(name) for name in RunInfo.__struct_fields__}
    values |= {name: msgspec.json.decode(str(meta[name])) for name in _JSON_FACTS}
    values["end_ns"] = meta.get("ended_ns") or meta["written_ns"]
    info = msgspec.convert(values, RunInfo)
    if info.state == "live" and not processes.is_running(*info.recorder):
        # A run marked live is not live without its recorder.
        return msgspec.structs.replace(info, state="interrupted")
    return info
