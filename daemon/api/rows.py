"""Rows of one type, as Python's objects and as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, overload

import msgspec
from msgspec import inspect

from profd.daemon.exports.tables import arrow

if TYPE_CHECKING:
    import pyarrow

Row = TypeVar("Row", bound=msgspec.Struct)


class Rows(Sequence[Row], Generic[Row]):
    """Rows of one type: a sequence of frozen structs, and a table for pandas, polars and DuckDB.

    What reads Arrow streams, such as DuckDB, takes it as it is. Its columns are the fields of the
    rows; a field that is a struct is a struct there, too.
    """

    def __init__(self, kind: type[Row], rows: Iterable[Row]) -> None:
        self.kind, self._rows = kind, tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Rows[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Rows[Row]:
        found = self._rows[place]
        return Rows(self.kind, found) if isinstance(found, tuple) else found

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {self.kind.__name__}>"

    def arrow(self) -> pyarrow.Table:
        """Return the rows as an Arrow table; raises MissingTool if pyarrow is not installed."""
        pa = arrow("parquet")
        kind = inspect.type_info(self.kind)
        assert isinstance(kind, inspect.StructType)
        columns = {}
        for field in kind.fields:
            values = [getattr(row, field.name) for row in self._rows]
            columns[field.encode_name] = pa.array(
                msgspec.to_builtins(values), _arrow_type(field.type)
            )
        return pa.table(columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give the table to what reads Arrow's stream interface."""
        return self.arrow().__arrow_c_stream__(requested_schema)


def _arrow_type(kind: inspect.Type) -> pyarrow.DataType:
    """Return the Arrow type of a field."""
    pa = arrow("parquet")
    match kind:
        case inspect.Metadata(type=inner):
            return _arrow_type(inner)
        case inspect.UnionType(types=several):  # what may be unknown is None
            (inner,) = (one for one in several if not isinstance(one, inspect.NoneType))
            return _arrow_type(inner)
        case inspect.StructType(fields=fields):
            return pa.struct([(one.encode_name, _arrow_type(one.type)) for one in fields])
        case inspect.VarTupleType(item_type=inner) | inspect.FrozenSetType(item_type=inner):
            return pa.list_(_arrow_type(inner))
        case inspect.BoolType():
            return pa.bool_()
        case inspect.IntType():
            return pa.int64()
        case inspect.FloatType():
            return pa.float64()
        case inspect.StrType():
            return pa.string()
    raise TypeError(f"{kind} has no type of Arrow's")
