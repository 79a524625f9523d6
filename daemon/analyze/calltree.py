"""The call tree of a profile: what a flame graph draws."""

from __future__ import annotations

from collections.abc import Iterator

from profd.daemon.analyze.profile import Profile
from profd.daemon.store.reader import RunReader


class CallNode:
    """A frame called from its parent: ``total_ns`` was spent in it and below, ``own_ns`` in it alone.

    ``samples`` passed through it. ``frame`` is the id of a frame row, 0 at the root, which stands for all of a profile.
    """

    __slots__ = ("children", "frame", "own_ns", "samples", "total_ns")

    def __init__(self, frame: int) -> None:
        self.frame = frame
        self.samples = 0
        self.own_ns = 0.0
        self.total_ns = 0.0
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
            children = sorted(node.children.values(), key=lambda child: child.total_ns)
            waiting += [(depth + 1, child) for child in children]


def call_tree(reader: RunReader, profile: Profile) -> CallNode:
    """Merge the stacks of a profile into one tree."""
    root = CallNode(0)
    for stack, samples in profile.samples.items():
        time_ns = profile.time_ns[stack]
        path = [root]
        for frame in reader.frames_of(stack):
            path.append(path[-1].child(frame.id))
        for node in path:
            node.samples += samples
            node.total_ns += time_ns
        path[-1].own_ns += time_ns
    return root
