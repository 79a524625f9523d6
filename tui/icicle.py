"""The flame tree laid out in cells, with a search and a cursor.

Only what can be seen is laid out: a node narrower than a cell is left out with all below it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from profd.daemon.analyze.calltree import Node
from profd.tui.flametree import folded, inverted

Path = tuple[Hashable, ...]
"""The keys of the nodes from below the root to a node."""


class Block(NamedTuple):
    """A node in its row: it covers the cells from ``left`` up to, but not including, ``right``.

    ``start_ns`` is its offset in the tree's time.
    """

    node: Node
    left: int
    right: int
    start_ns: float
    above: Block | None

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def path(self) -> Path:
        keys = []
        block = self
        while block.above is not None:
            keys.append(block.node.key)
            block = block.above
        return tuple(reversed(keys))


Row = Sequence[Block]


def lay_out(top: Node, width: int, rows: int) -> list[Row]:
    """Return the first ``rows`` rows of the icicle from ``top`` down.

    ``top`` is the first of them and takes all of ``width`` cells.
    """
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
    """Yield the blocks below a block.

    Edges are rounded alike in all rows, so that no block extends beyond its caller.
    """
    start_ns = above.start_ns
    for node in above.node.children:
        end_ns = start_ns + node.total_ns
        left = max(round(start_ns * cells_per_ns), above.left)
        right = min(round(end_ns * cells_per_ns), above.right)
        if right > left:
            yield Block(node, left, right, start_ns, above)
        start_ns = end_ns


def _follow(top: Node, path: Path) -> tuple[Node, Path]:
    """Return the node at the end of a path, and the path.

    If the nodes end earlier, return the last node and the part of the path up to it.
    """
    node = top
    for depth, key in enumerate(path):
        below = node.child(key)
        if below is None:
            return node, path[:depth]
        node = below
    return node, path


class FlameSearch:
    """A search for a text that ignores case; an empty one finds nothing."""

    def __init__(self, text: str) -> None:
        self.text = text.casefold()
        self._found: dict[int, bool] = {}

    def finds(self, node: Node) -> bool:
        """Say whether a node has the text in its function or place.

        If frames are folded into it, the text may be in its package, too.
        """
        frame = node.frame
        if not self.text or frame is None:
            return False
        if frame.id not in self._found:
            self._found[frame.id] = self.text in frame.label.casefold()
        return self._found[frame.id] or (node.hidden > 1 and self.text in node.title.casefold())

    def share(self, root: Node) -> float:
        """Return the share of the tree's time, 0 to 1, in stacks with the text.

        A stack counts once, even if it has the text several times.
        """
        found_ns, waiting = 0.0, [root]
        while waiting:
            node = waiting.pop()
            if self.finds(node):
                found_ns += node.total_ns
            else:
                waiting += node.children
        return found_ns / root.total_ns if root.total_ns else 0.0


class FlameCursor:
    """The visible part of one tree, and the cursor in it.

    A newer tree may replace it at any time; cursor and zoom stay.
    """

    def __init__(self) -> None:
        self.tree: Node | None = None
        self.is_inverted = False
        self.is_folded = False
        self.zooms: list[Path] = []
        self.rows: Sequence[Row] = []
        self.first_row = 0
        self._top: Node | None = None
        self._path: Path | None = None
        self._width = self._lines = 0

    @property
    def is_set(self) -> bool:
        return self._path is not None

    @property
    def zoomed(self) -> Node | None:
        return self._top if self.zooms else None

    @property
    def block(self) -> Block | None:
        if self._path is None:
            return None
        return next(
            (block for block in self.row(len(self._path)) if block.path == self._path), None
        )

    def row(self, depth: int) -> Row:
        return self.rows[depth] if 0 <= depth < len(self.rows) else []

    def show(self, tree: Node) -> None:
        """Go on in another tree, as far as it has the frames of the path."""
        self.tree = tree
        self._transform()

    def fit(self, width: int, lines: int) -> None:
        self._width, self._lines = width, lines
        self._lay_out()

    def climb(self, rows: int) -> None:
        """Go to the caller, or to the longest callee; the first move goes to the top."""
        block = self.block
        if block is None:
            self._path = () if self.rows else None
        elif rows < 0 and block.above is not None:
            self.go_to(block.above)
        elif rows > 0:
            below = (other for other in self.row(len(block.path) + 1) if other.above is block)
            self.go_to(max(below, key=lambda other: other.node.total_ns, default=block))

    def step(self, blocks: int) -> None:
        if (block := self.block) is not None:
            row = self.row(len(block.path))
            self.go_to(row[min(max(row.index(block) + blocks, 0), len(row) - 1)])

    def go_to(self, block: Block) -> None:
        self._path = block.path
        row = len(block.path)
        self.first_row = min(max(self.first_row, row - self._lines + 1), row)
        self._lay_out()

    def release(self) -> None:
        self._path, self.first_row = None, 0
        self._lay_out()

    def zoom(self) -> None:
        if self._path:
            self.zooms.append((self.zooms[-1] if self.zooms else ()) + self._path)
            self._path, self.first_row = (), 0
            self._transform()

    def back(self) -> None:
        """Go back to what was shown before the last zoom, with the cursor at its old place."""
        if self.zooms:
            left = self.zooms.pop()
            self._path = left[len(self.zooms[-1]) if self.zooms else 0 :]
            self._transform()

    def invert(self) -> None:
        self.is_inverted = not self.is_inverted
        self._reset()

    def fold(self) -> None:
        self.is_folded = not self.is_folded
        self._reset()

    def _reset(self) -> None:
        """Show the whole tree in its new form: a path in one form does not exist in the other."""
        self.zooms, self._path, self.first_row = [], None, 0
        self._transform()

    def _transform(self) -> None:
        if self.tree is None:
            return
        form = folded(self.tree) if self.is_folded else self.tree
        form = inverted(form) if self.is_inverted else form
        while self.zooms and _follow(form, self.zooms[-1])[1] != self.zooms[-1]:
            self.zooms.pop()
            self._path = None
        self._top, _ = _follow(form, self.zooms[-1] if self.zooms else ())
        if self._path is not None:
            _, self._path = _follow(self._top, self._path)
        self._lay_out()

    def _lay_out(self) -> None:
        """Lay out what can be seen.

        That is down to the cursor, one row for its next move, and the rows that fit below.
        """
        if self._top is None:
            return
        depth = len(self._path) if self._path else 0
        self.rows = lay_out(self._top, self._width, max(depth + 2, self.first_row + self._lines))
        while self._path and self.block is None:
            self._path = self._path[:-1]  # by now too narrow to be seen
        self.first_row = min(self.first_row, max(len(self.rows) - 1, 0))
