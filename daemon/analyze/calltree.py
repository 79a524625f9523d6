"""The call tree of a profile: each frame has its time, its phases, and what the GPU did then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import Busy, Profile
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow

MIXED = ""
"""The phase of a node if no phase has half of its time."""


class Node:
    """A frame with the time spent in it and below.

    ``key`` is unique among its siblings, ``frame`` is None at the root.

    ``samples`` passed through it. It is known for ``known_ns`` of its time what the GPU did, which
    was idle for ``idle_ns``. ``above`` is its parent. ``hidden`` is the number of library frames
    that were folded into it, 0 if it is a single frame. ``expand`` makes the nodes below when
    somebody looks at them, so that a large tree costs only what is seen of it.
    """

    __slots__ = (
        *("_children", "_expand", "above", "frame", "hidden", "key"),
        *("idle_ns", "known_ns", "own_ns", "phases_ns", "samples", "total_ns"),
    )

    def __init__(
        self, key: Hashable, frame: FrameRow | None, expand: Callable[[], list[Node]] | None = None
    ) -> None:
        self.key, self.frame, self.hidden, self.samples = key, frame, 0, 0
        self.above: Node | None = None
        self.own_ns = self.total_ns = self.known_ns = self.idle_ns = 0.0
        self.phases_ns: defaultdict[str, float] = defaultdict(float)
        self._expand = expand
        self._children: list[Node] | None = None if expand else []

    @property
    def children(self) -> list[Node]:
        """The nodes below, in an order that does not depend on how much time they have."""
        if self._children is None:
            self._children = []
            for child in sorted(self._expand() if self._expand else [], key=_place_of):
                self.add_child(child)
        return self._children

    @property
    def is_library(self) -> bool:
        return self.frame is not None and self.frame.is_library

    @property
    def package(self) -> str:
        return self.frame.module_path.partition("/")[0] if self.frame else ""

    @property
    def phase(self) -> str:
        """The phase that at least half of its time belongs to, MIXED if there is none."""
        phase = max(self.phases_ns, key=lambda name: self.phases_ns[name], default=MIXED)
        return phase if phase and 2 * self.phases_ns[phase] >= self.total_ns else MIXED

    @property
    def gpu_idle(self) -> float | None:
        """The share of its time for which the GPU was idle, 0 to 1; None if none was read then."""
        return self.idle_ns / self.known_ns if self.known_ns else None

    @property
    def title(self) -> str:
        if self.frame is None:
            return "all"
        return f"{self.package} · {self.hidden} frames" if self.hidden > 1 else self.frame.function

    @property
    def place(self) -> str:
        """The file and line of its frame, or of the folded frame with the most time."""
        return f"{self.frame.module_path}:{self.frame.line}" if self.frame else ""

    def add_child(self, child: Node) -> None:
        child.above = self
        self.children.append(child)

    def add(self, other: Node, share: float = 1.0) -> None:
        """Add a share of the time of another node to this one and below."""
        self.samples += other.samples
        self.total_ns += other.total_ns * share
        self.known_ns += other.known_ns * share
        self.idle_ns += other.idle_ns * share
        for phase, time_ns in other.phases_ns.items():
            self.phases_ns[phase] += time_ns * share

    def child(self, key: Hashable) -> Node | None:
        return next((child for child in self.children if child.key == key), None)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below, callers first, without recursion: stacks may be deep."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children


def _place_of(node: Node) -> tuple[int, int]:
    """Return where a node stands among its siblings: in the order in which they were seen first."""
    return (node.frame.id if node.frame else 0, node.hidden)


def call_tree(
    reader: RunReader, profile: Profile, phases: PhaseIndex, busy: Mapping[int, Busy] | None = None
) -> Node:
    """Merge the stacks of a profile into one tree; ``busy`` is what the GPUs did meanwhile."""
    known = {0: Node(0, None)}
    for stack, time_ns in profile.time_ns.items():
        reader.frames_of(stack)  # raises RunUnreadable if the stack is damaged
        missing, at = [], stack
        while at not in known:
            missing.append(at)
            at = reader.stacks[at].parent
        for inner in reversed(missing):
            row = reader.stacks[inner]
            known[inner] = Node(row.frame, reader.frames[row.frame])
            known[row.parent].add_child(known[inner])
        node = known[stack]
        node.own_ns = node.total_ns = node.phases_ns[phases.of_stack(stack)] = time_ns
        node.samples = profile.samples[stack]
        if busy and stack in busy:
            node.known_ns, node.idle_ns = time_ns, time_ns * (1.0 - busy[stack].utilization)
    for stack in reversed(list(known)):  # callers come before what they call
        node = known[stack]
        node.children.sort(key=_place_of)
        if node.above is not None:
            node.above.add(node)
    return known[0]
