"""What types the columns of a row have to have: SQLite holds any value in any column, and a run file may be hostile."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, TypeVar, get_type_hints

import msgspec

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
