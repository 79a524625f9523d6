"""The nodes of a joined file, and which of them each process ran on."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from profd.daemon.store import database
from profd.daemon.store.reader import RunReader
from profd.daemon.store.replay import node_of

NODES = "nodes"
"""The name in table ``meta`` under which a joined file tells its nodes, as JSON."""


class JoinedNode(msgspec.Struct, frozen=True):
    """A node of a joined file: its run, how far its clock was ahead of the first node's, and how that is known.

    ``host`` tells it from the others; ``error_ns`` is None where the wall clocks were taken for equal.
    """

    number: int
    host: str
    run: str
    offset_ns: int
    error_ns: int | None
    source: str
    matched: int


class _MetaRow(msgspec.Struct, frozen=True):
    value: str


def nodes_of(reader: RunReader) -> tuple[JoinedNode, ...]:
    """Return the nodes of a joined file; none of any other run's."""
    rows = reader.select(_MetaRow, "SELECT value FROM meta WHERE name = ?", NODES)
    with database.reading(reader.path):
        return msgspec.json.decode(rows[0][0], type=tuple[JoinedNode, ...]) if rows else ()


def hosts_of(reader: RunReader) -> Mapping[int, str]:
    """Return by process the host that it ran on."""
    nodes = {node.number: node.host for node in nodes_of(reader)}
    host = reader.info.host
    return {row.id: nodes.get(node_of(row.start_ticks), host) for row in reader.processes.values()}
