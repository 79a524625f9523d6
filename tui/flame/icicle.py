"""Lays a flame tree out in cells of a terminal: the root on top, one row a frame, widths by share of time.

Only what can be seen is laid out: a node narrower than a cell is left out with all below it. Knows no colors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from profd.tui.flame.tree import Node

Path = tuple[Hashable, ...]
"""The keys of the nodes from below the root to a node."""


class Block(NamedTuple):
    """A node in its row: cells from ``left`` up to, and without, ``right``; ``start_ns`` is its place in the time."""

    node: Node
    left: int
    right: int
    start_ns: float
    above: Block | None

    @property
    def width(self) -> int:
        """How many cells it takes."""
        return self.right - self.left

    @property
    def path(self) -> Path:
        """The way to it from the top of the picture."""
        keys: list[Hashable] = []
        block = self
        while block.above is not None:
            keys.append(block.node.key)
            block = block.above
        return tuple(reversed(keys))


Row = Sequence[Block]


def lay_out(top: Node, width: int, rows: int) -> list[Row]:
    """Return the first ``rows`` rows of the icicle below and with ``top``, which takes all of ``width`` cells."""
    if width <= 0 or rows <= 0 or top.total_ns <= 0:
        return []
    cells_per_ns = width / top.total_ns
    laid: list[Row] = [[Block(top, 0, width, 0.0, None)]]
    while len(laid) < rows:
        row = [block for above in laid[-1] for block in _below(above, cells_per_ns)]
        if not row:
            break
        laid.append(row)
    return laid


def _below(above: Block, cells_per_ns: float) -> Iterator[Block]:
    """Yield the blocks below one. Edges are rounded alike in all rows, so that none leaves that of its caller."""
    start_ns = above.start_ns
    for node in above.node.children:
        end_ns = start_ns + node.total_ns
        left = max(round(start_ns * cells_per_ns), above.left)
        right = min(round(end_ns * cells_per_ns), above.right)
        if right > left:
            yield Block(node, left, right, start_ns, above)
        start_ns = end_ns


def find(top: Node, path: Path) -> Node | None:
    """Return the node at the end of a path; None where there is none any more."""
    node: Node | None = top
    for key in path:
        node = node.child(key) if node is not None else None
    return node


def known_part(top: Node, path: Path) -> Path:
    """Return as much of a path as there is."""
    node: Node | None = top
    for depth, key in enumerate(path):
        node = node.child(key) if node is not None else None
        if node is None:
            return path[:depth]
    return path
