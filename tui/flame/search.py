"""Searches a flame tree: which frames have a text in them, and the share of time that has one of them in its stack."""

from __future__ import annotations

from profd.daemon.store.rows import FrameRow
from profd.tui.flame.tree import Node


class FlameSearch:
    """A search for a text, in capitals or not; an empty one finds nothing."""

    def __init__(self, text: str) -> None:
        self.text = text.casefold()
        self._found: dict[int, bool] = {}

    def finds(self, node: Node) -> bool:
        """Say whether a node has the text in its function or place, or its package where frames are folded into it."""
        if not self.text or node.frame is None:
            return False
        return self._is_in(node.frame) or (node.hidden > 1 and self.text in node.title.casefold())

    def share(self, root: Node) -> float:
        """Return the share of the tree's time in stacks with the text, however often it is in them; 0 to 1."""
        found_ns, waiting = 0.0, [root]
        while waiting:
            node = waiting.pop()
            if self.finds(node):
                found_ns += node.total_ns
            else:
                waiting += node.children
        return found_ns / root.total_ns if root.total_ns else 0.0

    def _is_in(self, frame: FrameRow) -> bool:
        if frame.id not in self._found:
            self._found[frame.id] = self.text in frame.label.casefold()
        return self._found[frame.id]
