"""Which nodes are slow: the steps of their runs against those of the same job and command on other nodes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from profd.daemon.fleet.answers import SlowNode
from profd.daemon.fleet.gaps import Gap, combined, pooled_gap
from profd.daemon.fleet.paces import RunPaces

Work = tuple[str, str, int]
"""A job, its command and the week: what takes equally long on equal nodes."""
Values = Mapping[Work, Mapping[str, Sequence[float]]]
"""By work and node the logarithms of what a step takes, a value a run."""


def find_slow_nodes(paces: Iterable[RunPaces], least: float) -> tuple[list[SlowNode], int]:
    """Return the nodes that are surely slower than the others, by ``least`` or more, and how many were compared.

    The slowest first. Who was found is left out when the rest are compared: two slow nodes don't hide each other.
    """
    values = _values(paces)
    nodes = sorted({node for by_node in values.values() for node in by_node})
    compared = len(_gaps(values, nodes, frozenset()))
    found: list[SlowNode] = []
    while len(found) < compared:
        known = frozenset(one.node for one in found)
        slow = [
            one
            for node, gaps in _gaps(values, nodes, known).items()
            if (one := _judged(node, gaps, values, compared)) is not None and one.times >= 1 + least
        ]
        if not slow:
            break
        found.append(max(slow, key=lambda one: (one.low, one.node)))
    return sorted(found, key=lambda one: (-one.times, one.node)), compared


def _values(paces: Iterable[RunPaces]) -> Values:
    found: defaultdict[Work, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in paces:
        for week in sorted(one.weeks):
            pace = one.pace(one.days(week))
            if pace is not None and pace.own_s > 0:
                found[one.run.job, one.run.command, week][one.run.node].append(math.log(pace.own_s))
    return found


def _gaps(values: Values, nodes: Iterable[str], known: frozenset[str]) -> dict[str, dict[Work, Gap]]:
    """Return of each node that is not ``known`` to be slow how it differs from the others, work by work."""
    found: dict[str, dict[Work, Gap]] = {}
    for node in nodes:
        gaps = {work: _gap(by_node, node, known) for work, by_node in values.items() if node in by_node}
        told = {work: one for work, one in gaps.items() if one is not None}
        if told and node not in known:
            found[node] = told
    return found


def _gap(by_node: Mapping[str, Sequence[float]], node: str, known: frozenset[str]) -> Gap | None:
    others = [value for other, values in by_node.items() if other != node and other not in known for value in values]
    return pooled_gap(by_node[node], others)


def _judged(node: str, gaps: Mapping[Work, Gap], values: Values, compared: int) -> SlowNode | None:
    """Return a node as a slow one; None where it may be as fast as the others."""
    gap = combined([gaps[work] for work in sorted(gaps)])
    low, high = gap.bounds(compared)
    if low <= 0:
        return None
    runs = sum(len(values[work][node]) for work in gaps)
    jobs = tuple(sorted({job for job, _, _ in gaps}))
    return SlowNode(node, math.exp(gap.value), math.exp(low), math.exp(high), jobs, runs)
