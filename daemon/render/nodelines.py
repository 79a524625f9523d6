"""The nodes of a job as lines of text: whose clock was off by how much, and how that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.render.cells import fit, width
from profd.daemon.render.visible import visible
from profd.daemon.store.noderows import JoinedNode

_NODES = 32


def node_lines(nodes: Sequence[JoinedNode]) -> Iterator[str]:
    """Yield the table of the nodes; nothing where there are none."""
    if not nodes:
        return
    cells = max(width(visible(node.host)) for node in nodes)
    yield f"  {fit('node', cells)}  {'clock':>20}  run"
    for node in nodes[:_NODES]:
        yield f"  {fit(node.host, cells)}  {clock(node):>20}  {visible(node.run)}  {told_by(node)}"
    if len(nodes) > _NODES:
        yield f"  and {len(nodes) - _NODES} more"


def clock(node: JoinedNode) -> str:
    """Return by how much a node's clock is ahead: ``+1,500 ms ± 2.1``."""
    if node.number == 0:
        return "0"
    if node.error_ns is None:
        return "not known"
    return f"{node.offset_ns / MILLISECOND_NS:+,.1f} ms ± {node.error_ns / MILLISECOND_NS:,.1f}"


def told_by(node: JoinedNode) -> str:
    """Return how the offset of a clock is known."""
    if node.number == 0:
        return "the clock that all times are in"
    if node.error_ns is None:
        return "nothing tells how far its clock is off: taken as it is"
    return f"by {node.source}" + (f", {node.matched:,} of them" if node.matched else "")
