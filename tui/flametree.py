"""The call tree that the flame view draws: its nodes with phases and GPU time, folded or inverted.

Folded and inverted trees are made lazily, below what is looked at, and of any tree: a folded one may be inverted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from profd.daemon.analyze.profile import Busy, Profile
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow
from profd.tui.phaserows import Places

MIXED = ""
"""The phase of a node of which no phase has half."""


class Node:
    """A frame with the time spent in it and below; ``key`` is unique among its siblings, ``frame`` is None at the root.

    Of ``known_ns`` of its time it is known what the GPU did: for ``idle_ns`` it was idle.
    ``above`` is the node that it hangs below. ``hidden`` is the number of library frames that were folded into it, 0
    where it is a single one. ``expand`` makes what is below, when somebody looks at it: so that a tree of any size
    costs what is seen of it.
    """

    __slots__ = (
        *("_children", "_expand", "above", "frame", "hidden", "key"),
        *("idle_ns", "known_ns", "own_ns", "phases_ns", "total_ns"),
    )

    def __init__(self, key: Hashable, frame: FrameRow | None, expand: Callable[[], list[Node]] | None = None) -> None:
        self.key, self.frame, self.hidden = key, frame, 0
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
        """The phase that at least half of its time belongs to, MIXED where there is none."""
        phase = max(self.phases_ns, key=lambda name: self.phases_ns[name], default=MIXED)
        return phase if phase and 2 * self.phases_ns[phase] >= self.total_ns else MIXED

    @property
    def gpu_idle(self) -> float | None:
        """The share of its time for which the GPU was idle, 0 to 1; None where nothing was read of one meanwhile."""
        return self.idle_ns / self.known_ns if self.known_ns else None

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

    def add(self, other: Node, share: float = 1.0) -> None:
        """Count a share of the time of another node in it or below."""
        self.total_ns += other.total_ns * share
        self.known_ns += other.known_ns * share
        self.idle_ns += other.idle_ns * share
        for phase, time_ns in other.phases_ns.items():
            self.phases_ns[phase] += time_ns * share

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


def grow(reader: RunReader, profile: Profile, places: Places, busy: Mapping[int, Busy]) -> Node:
    """Return the tree of a profile; ``busy`` is what the GPUs did meanwhile."""
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
        node = known[stack]
        node.own_ns = node.total_ns = node.phases_ns[places(stack)[0]] = time_ns
        if stack in busy:
            node.known_ns, node.idle_ns = time_ns, time_ns * (1.0 - busy[stack].utilization)
    for stack in reversed(list(known)):  # callers come before what they call
        node = known[stack]
        node.children.sort(key=_place_of)
        if node.above is not None:
            node.above.add(node)
    return known[0]


def folded(root: Node) -> Node:
    """Return the tree with every run of library frames as one node, named by the package of its first."""
    top = Node(root.key, root.frame, lambda: _folded_below([root], inside_library=False))
    top.own_ns = root.own_ns
    top.add(root)
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
        node.add(head)
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
    top.add(root)
    return top


def _callers(endings: Iterable[tuple[Node, Node]]) -> list[Node]:
    """Return the nodes for pairs of a leaf and one of its callers; the time is the leaf's own."""
    groups: defaultdict[Hashable, list[tuple[Node, Node]]] = defaultdict(list)
    for leaf, caller in endings:
        groups[caller.key].append((leaf, caller))
    return [_caller(key, group) for key, group in groups.items()]


def _caller(key: Hashable, group: Sequence[tuple[Node, Node]]) -> Node:
    above = ((leaf, caller.above) for leaf, caller in group)
    further = [(leaf, caller) for leaf, caller in above if caller is not None and caller.frame is not None]
    node = Node(key, group[0][1].frame, lambda: _callers(further))
    node.hidden = group[0][1].hidden
    for leaf, caller in group:
        node.add(leaf, leaf.own_ns / (leaf.total_ns or 1.0))
        node.own_ns += leaf.own_ns if leaf is caller else 0.0
    return node
