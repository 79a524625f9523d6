"""The call tree that the flame view draws: its nodes with phases and GPU time, folded or inverted.

Folded and inverted trees are made lazily, below what is looked at, and of any tree: a folded one may be inverted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from profd.daemon.analyze.functions import Busy
from profd.daemon.analyze.profile import Profile
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow

MIXED = ""
"""The phase of a node of which no phase has half."""


class GpuTime(NamedTuple):
    """For how long it is known what the GPU did, and for how long of that it was idle."""

    known_ns: float = 0.0
    idle_ns: float = 0.0

    def plus(self, other: GpuTime, times: float = 1.0) -> GpuTime:
        if not other.known_ns:  # most trees are of runs without a GPU
            return self
        return GpuTime(self.known_ns + other.known_ns * times, self.idle_ns + other.idle_ns * times)


NO_GPU = GpuTime()


class Node:
    """A frame with the time spent in it and below; ``key`` tells it from its siblings, ``frame`` is None at the root.

    ``above`` is the node that it hangs below. ``hidden`` is the number of library frames that were folded into it, 0
    where it is a single one. ``expand`` makes what is below, when somebody looks at it: so that a tree of any size
    costs what is seen of it.
    """

    __slots__ = ("_children", "_expand", "above", "frame", "gpu", "hidden", "key", "own_ns", "phases_ns", "total_ns")

    def __init__(self, key: Hashable, frame: FrameRow | None, expand: Callable[[], list[Node]] | None = None) -> None:
        self.key = key
        self.frame = frame
        self.above: Node | None = None
        self.hidden = 0
        self.own_ns = self.total_ns = 0.0
        self.gpu = NO_GPU
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
        """The first part of the path of its module: ``torch``, ``train.py``."""
        return self.frame.module_path.partition("/")[0] if self.frame else ""

    @property
    def phase(self) -> str:
        """The phase that at least half of its time belongs to, MIXED where there is none."""
        if not self.phases_ns:
            return MIXED
        phase = max(self.phases_ns, key=lambda name: self.phases_ns[name])
        return phase if 2 * self.phases_ns[phase] >= self.total_ns else MIXED

    @property
    def gpu_idle(self) -> float | None:
        """The share of its time for which the GPU was idle, 0 to 1; None where nothing was read of one meanwhile."""
        return self.gpu.idle_ns / self.gpu.known_ns if self.gpu.known_ns else None

    @property
    def title(self) -> str:
        if self.frame is None:
            return "all"
        return f"{self.package} · {self.hidden} frames" if self.hidden > 1 else self.frame.function

    @property
    def place(self) -> str:
        """The file and line of its frame; of several that were folded, of the one with the most time."""
        return f"{self.frame.module_path}:{self.frame.line}" if self.frame else ""

    def add_child(self, child: Node) -> None:
        child.above = self
        self.children.append(child)

    def count(self, time_ns: float, phases_ns: Mapping[str, float], gpu: GpuTime = NO_GPU) -> None:
        self.total_ns += time_ns
        self.gpu = self.gpu.plus(gpu)
        for phase, of_phase_ns in phases_ns.items():
            self.phases_ns[phase] += of_phase_ns

    def child(self, key: Hashable) -> Node | None:
        return next((child for child in self.children if child.key == key), None)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below, callers first; no recursion, since stacks may be very deep."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children


def _place_of(node: Node) -> tuple[int, int]:
    """Return where a node stands among its siblings: what was seen first comes first, whatever its time."""
    return (node.frame.id if node.frame else 0, node.hidden)


def grow(reader: RunReader, profile: Profile, phase_of: Callable[[int], str], busy: Mapping[int, Busy]) -> Node:
    """Return the tree of a profile; ``phase_of`` gives the phase of a stack, ``busy`` what the GPUs did meanwhile."""
    known = {0: Node(0, None)}
    for stack, time_ns in profile.time_ns.items():
        reader.frames_of(stack)  # raises RunUnreadable where the stack is damaged
        missing, at = [], stack
        while at not in known:
            missing.append(at)
            at = reader.stacks[at].parent
        for inner in reversed(missing):
            row = reader.stacks[inner]
            known[inner] = Node(row.frame, reader.frames[row.frame])
            known[row.parent].add_child(known[inner])
        gpu = GpuTime(time_ns, time_ns * (1.0 - busy[stack].utilization)) if stack in busy else NO_GPU
        known[stack].own_ns = time_ns
        known[stack].count(time_ns, {phase_of(stack): time_ns}, gpu)
    for stack in reversed(list(known)):  # callers come before what they call
        node = known[stack]
        node.children.sort(key=_place_of)
        if node.above is not None:
            node.above.count(node.total_ns, node.phases_ns, node.gpu)
    return known[0]


def folded(root: Node) -> Node:
    """Return the tree with every run of library frames as one node, named by the package of its first."""
    top = Node(root.key, root.frame, lambda: _folded_below([root], inside_library=False))
    top.own_ns = root.own_ns
    top.count(root.total_ns, root.phases_ns, root.gpu)
    return top


def _folded_below(sources: Iterable[Node], *, inside_library: bool) -> list[Node]:
    groups: defaultdict[Hashable, list[Node]] = defaultdict(list)
    for source in sources:
        for child in source.children:
            if not (inside_library and child.is_library):
                groups[("library", child.package) if child.is_library else child.key].append(child)
    return [_fold(key, heads) for key, heads in groups.items()]


def _fold(key: Hashable, heads: Sequence[Node]) -> Node:
    run = list(_library_run(heads)) if heads[0].is_library else list(heads)
    heaviest = max(heads, key=lambda node: node.total_ns)
    node = Node(key, heaviest.frame, lambda: _folded_below(run, inside_library=heads[0].is_library))
    node.hidden = len({inner.key for inner in run}) if heads[0].is_library else 0
    node.own_ns = sum(inner.own_ns for inner in run)
    for head in heads:
        node.count(head.total_ns, head.phases_ns, head.gpu)
    return node


def _library_run(heads: Sequence[Node]) -> Iterator[Node]:
    waiting = list(heads)
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [child for child in node.children if child.is_library]


def inverted(root: Node) -> Node:
    """Return the tree from the leaves: below each function its callers, by the time that it spent itself."""
    leaves = [(node, node) for node in root.walk() if node.own_ns and node.frame is not None]
    top = Node(root.key, root.frame, lambda: _callers(leaves))
    top.count(root.total_ns, root.phases_ns, root.gpu)
    return top


def _callers(endings: Iterable[tuple[Node, Node]]) -> list[Node]:
    """Return the nodes for pairs of a leaf and one of its callers; the time is the leaf's own."""
    groups: defaultdict[Hashable, list[tuple[Node, Node]]] = defaultdict(list)
    for leaf, caller in endings:
        groups[caller.key].append((leaf, caller))
    return [_caller(key, group) for key, group in groups.items()]


def _caller(key: Hashable, group: Sequence[tuple[Node, Node]]) -> Node:
    further = [
        (leaf, caller.above) for leaf, caller in group if caller.above is not None and caller.above.frame is not None
    ]
    node = Node(key, group[0][1].frame, lambda: _callers(further))
    node.hidden = group[0][1].hidden
    for leaf, caller in group:
        share = leaf.own_ns / (leaf.total_ns or 1.0)
        phases_ns = {phase: time_ns * share for phase, time_ns in leaf.phases_ns.items()}
        node.count(leaf.own_ns, phases_ns, NO_GPU.plus(leaf.gpu, share))
        if leaf is caller:
            node.own_ns += leaf.own_ns
    return node
