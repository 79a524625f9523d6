"""The call tree of a profile: what a flame graph draws."""

from __future__ import annotations

from collections.abc import Iterator

from profd.daemon.analyze.profile import Profile
from profd.daemon.store.reader import RunReader


class CallNode:
    """A frame called from its parent: ``total`` samples passed through it, ``own`` ended in it.

    ``frame`` is the id of a frame row, 0 at the root, which stands for the whole profile.
    """

    __slots__ = ("children", "frame", "own", "total")

    def __init__(self, frame: int) -> None:
        self.frame = frame
        self.own = 0
        self.total = 0
        self.children: dict[int, CallNode] = {}

    def child(self, frame: int) -> CallNode:
        """Return the node of a frame called from this one, new where it was not called yet."""
        if frame not in self.children:
            self.children[frame] = CallNode(frame)
        return self.children[frame]

    def walk(self) -> Iterator[tuple[int, CallNode]]:
        """Yield (depth, node) in depth-first order, the largest child first; this node has depth 0."""
        # No recursion: stacks may be deeper than the interpreter lets functions nest.
        waiting = [(0, self)]
        while waiting:
            depth, node = waiting.pop()
            yield depth, node
            waiting += [(depth + 1, child) for child in sorted(node.children.values(), key=lambda child: child.total)]


def call_tree(reader: RunReader, profile: Profile) -> CallNode:
    """Merge the stacks of a profile into one tree."""
    root = CallNode(0)
    for stack, samples in profile.samples.items():
        node = root
        node.total += samples
        for frame in reader.frames_of(stack):
            node = node.child(frame.id)
            node.total += samples
        node.own += samples
    return root
