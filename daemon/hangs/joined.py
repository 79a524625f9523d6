"""The hangs of a job's nodes as one, with the rank that all wait for.

A node alone sees that its ranks wait, and not for whom. This module is pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from profd.daemon.collectives.desync import DesyncVerdict, Progress
from profd.daemon.hangs.desync import find_desync
from profd.daemon.hangs.look import Look, StackState
from profd.daemon.hangs.waits import Wait
from profd.daemon.store.records import HangFound, HangGroup, HangReport, Identity, Stand
from profd.daemon.tree.tree import Member


def join_hangs(hangs: Sequence[HangFound], hosts: Mapping[int, str]) -> list[HangFound]:
    """Return the hangs of all nodes, those of the same time and of other ranks as one.

    ``hosts`` has the host of each rank. Hangs stay as they are if no rank is behind the others.
    """
    found: list[list[HangFound]] = []
    for hang in sorted(hangs, key=lambda one: one.since_ns):
        ranks = _ranks(hang)
        fits = (
            group
            for group in found
            if all(_overlap(hang, one) and not ranks & _ranks(one) for one in group)
        )
        group = next(fits, None) if ranks else None
        if group is None:
            found.append([hang])
        else:
            group.append(hang)
    return [one for group in found for one in _joined(group, hosts)]


def _joined(hangs: Sequence[HangFound], hosts: Mapping[int, str]) -> Sequence[HangFound]:
    """Return hangs of one time as one; as they are if they are of one node, or tell no rank."""
    groups = tuple(group for hang in hangs for group in hang.report.groups)
    look = Look(max(hang.at_ns for hang in hangs), tuple(_rows(groups)))
    cause = find_desync(look, (), DesyncVerdict(Progress.UNKNOWN)) if len(hangs) > 1 else None
    if cause is None or not cause.behind:
        return hangs
    behind = tuple(
        replace(one, host=hosts.get(one.rank or 0, "another host")) for one in cause.behind
    )
    places = ", ".join(f"rank {one.rank} is on {one.host}" for one in behind)
    texts = tuple(hang.text for hang in hangs)
    facts = tuple(fact for hang in hangs for fact in hang.report.facts)
    hang = HangFound(
        look.at_ns,
        max(hang.since_ns for hang in hangs),
        f"all nodes ({cause.group}): {cause.text}; {places}",
        HangReport(cause.group, groups, (*texts, *facts), behind),
        max((hang.ended_ns for hang in hangs), key=lambda end_ns: end_ns or math.inf),
    )
    return [hang]


def _rows(groups: Sequence[HangGroup]) -> list[StackState]:
    return [
        StackState(
            _member(stand),
            stand.thread,
            stand.is_main,
            group.frames,
            Wait(stand.kind, stand.wait),
            native=group.native,
        )
        for group in groups
        for stand in group.stands
    ]


def _member(stand: Stand) -> Member:
    identity = Identity(stand.pid, 0)
    return Member(identity, None, (), stand.role, stand.rank, None, None, 0)


def _ranks(hang: HangFound) -> set[int]:
    stands = (stand for group in hang.report.groups for stand in group.stands)
    return {one.rank for one in stands if one.is_main and one.rank is not None}


def _overlap(one: HangFound, other: HangFound) -> bool:
    """Return whether two hangs were at the same time."""
    first, second = sorted((one, other), key=lambda hang: hang.since_ns)
    return first.ended_ns is None or first.ended_ns > second.since_ns
