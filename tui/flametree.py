"""The call tree as the flame view draws it: folded or inverted.

Folded and inverted trees are made lazily, below the current node, and of any tree: a folded one may
be inverted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

from profd.daemon.analyze.calltree import Node


def folded(root: Node) -> Node:
    """Return the tree with every run of library frames as one node.

    The package of its first frame names the node.
    """
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
    is_library = heads[0].is_library
    run = list(_library_run(heads) if is_library else heads)
    heaviest = max(heads, key=lambda node: node.total_ns)
    node = Node(key, heaviest.frame, lambda: _folded_below(run, inside_library=is_library))
    node.hidden = len({inner.key for inner in run}) if is_library else 0
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
    """Return the tree from the leaves.

    Below each function are its callers, by the self time of the function.
    """
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
    further = [
        (leaf, caller) for leaf, caller in above if caller is not None and caller.frame is not None
    ]
    node = Node(key, group[0][1].frame, lambda: _callers(further))
    node.hidden = group[0][1].hidden
    for leaf, caller in group:
        node.add(leaf, leaf.own_ns / (leaf.total_ns or 1.0))
        node.own_ns += leaf.own_ns if leaf is caller else 0.0
    return node
