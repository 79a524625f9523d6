"""Reads what a page carries, as its script does."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from array import array
from types import SimpleNamespace
from typing import Any

import msgspec

from support.present import there

TYPECODES = {
    "Uint8Array": "B",
    "Uint16Array": "H",
    "Uint32Array": "I",
    "Int32Array": "i",
    "Float64Array": "d",
}


def unpack(packed: str) -> Any:  # noqa: ANN401  whatever JSON holds
    """Return the data that were packed, with their names as attributes."""
    inflated = zlib.decompress(base64.b64decode(packed))
    (length,) = struct.unpack_from("<I", inflated)
    columns = inflated[-(-(4 + length) // 8) * 8 :]
    return _with_columns(msgspec.json.decode(inflated[4 : 4 + length]), columns)


def embedded(page: str) -> Any:  # noqa: ANN401  whatever JSON holds
    """Return what a page carries."""
    return unpack(there(re.search(r'id="run">([^<]*)<', page))[1])


def _with_columns(value: Any, columns: bytes) -> Any:  # noqa: ANN401  whatever JSON holds
    if isinstance(value, dict) and "numbers" in value:
        values = array(TYPECODES[value["numbers"]])
        values.frombytes(columns[value["at"] : value["at"] + value["count"] * values.itemsize])
        return [int(each) for each in values]
    if isinstance(value, dict):
        return SimpleNamespace(
            **{name: _with_columns(each, columns) for name, each in value.items()}
        )
    return [_with_columns(each, columns) for each in value] if isinstance(value, list) else value
