"""Makes run files that give more than they hold: pages that are linked from many places."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from pathlib import Path

_TABLE_LEAF, _INDEX_LEAF, _TABLE_NODE, _INDEX_NODE = 13, 10, 5, 2
_HEADER = struct.Struct(
    ">BHHHBI"
)  # kind, first free block, cells, where these begin, free bytes, rightmost page
_LINKS = 100


def link_many_times(path: Path, table: str, levels: int) -> None:
    """Have a table with rows lead to its first page by ``100 ** levels`` ways, as if it had so many
    times the rows.
    """
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
        ).fetchone()
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(path.read_bytes())
    pages = len(data) // page_size
    leaf = data[(root - 1) * page_size : root * page_size]
    if leaf[0] not in (_TABLE_LEAF, _INDEX_LEAF):
        raise ValueError(f"{table} has more than one page")
    data += leaf
    for level in range(levels - 1):
        data += _node(leaf, pages + 1 + level, page_size)
    data[(root - 1) * page_size : root * page_size] = _node(leaf, pages + levels, page_size)
    data[28:32] = (len(data) // page_size).to_bytes(4, "big")
    path.write_bytes(data)


def _node(leaf: bytearray, child: int, page_size: int) -> bytes:
    """Return a page that leads to one child many times.

    What lies between is the first row of an index, or id 1.
    """
    if leaf[0] == _TABLE_LEAF:
        kind, between = _TABLE_NODE, b"\x01"
    else:
        at = int.from_bytes(leaf[8:10], "big")
        kind, between = _INDEX_NODE, bytes(leaf[at : at + 1 + leaf[at]])
    cell = child.to_bytes(4, "big") + between
    cells = min(_LINKS, (page_size - 12) // (len(cell) + 2))
    begin = page_size - cells * len(cell)
    places = b"".join((begin + index * len(cell)).to_bytes(2, "big") for index in range(cells))
    head = _HEADER.pack(kind, 0, cells, begin, 0, child) + places
    return head + bytes(begin - len(head)) + cell * cells
