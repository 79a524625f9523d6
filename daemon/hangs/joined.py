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
from profd.daemon.store.records import HangFound, HangGroup, HangReport, Identity
from profd.daemon.tree.tree import Member


def join_hangs(hangs: Sequence[HangFound], hosts: Mapping[int, str]) -> list[HangFound]:
    """Return the hangs of all nodes, in their order; those of one time and other ranks as one.

    ``hosts`` has the host of each rank. Hangs stay as they are if no rank is behind the others.
    """
    found: list[list[HangFound]] = []
    for hang in hangs:
        if found and _fits(hang, found[-1]):
            found[-1].append(hang)
        else:
            found.append([hang])
    return [one for group in found for one in _joined(group, hosts)]


def _joined(hangs: Sequence[HangFound], hosts: Mapping[int, str]) -> Sequence[HangFound]:
    """Return hangs of one time as one; as they are if they are of one node, or tell no rank."""
    groups = tuple(group for hang in hangs for group in hang.report.groups)
    look = Look(hangs[-1].at_ns, tuple(_rows(groups)))
    cause = find_desync(look, (), DesyncVerdict(Progress.UNKNOWN)) if len(hangs) > 1 else None
    if cause is None or not cause.behind:
        return hangs
    behind = tuple(
        replace(one, host=hosts.get(one.rank or 0, "another host")) for one in cause.behind
    )
    places = ", ".join(f"rank {one.rank} is on {one.host}" for one in behind)
    facts = sum((hang.report.facts for hang in hangs), tuple(hang.text for hang in hangs))
    hang = HangFound(
        look.at_ns,
        max(hang.since_ns for hang in hangs),
        f"all nodes ({cause.group}): {cause.text}; {places}",
        HangReport(cause.group, groups, facts, behind),
        max((hang.ended_ns for hang in hangs), key=lambda end_ns: end_ns or math.inf),
    )
    return [hang]


def _rows(groups: Sequence[HangGroup]) -> list[StackState]:
    return [
        StackState(
            Member(Identity(stand.pid, 0), None, (), stand.role, stand.rank, None, None, 0),
            stand.thread,
            stand.is_main,
            group.frames,
            Wait(stand.kind, stand.wait),
            native=group.native,
        )
        for group in groups
        for stand in group.stands
    ]


def _ranks(hang: HangFound) -> set[int]:
    stands = (stand for group in hang.report.groups for stand in group.stands)
    return {one.rank for one in stands if one.is_main and one.rank is not None}


def _fits(hang: HangFound, earlier: Sequence[HangFound]) -> bool:
    """Return whether a hang began before earlier ones had ended, and is of other ranks."""
    ranks = _ranks(hang)
    return all(
        (one.ended_ns is None or one.ended_ns > hang.since_ns) and ranks.isdisjoint(_ranks(one))
        for one in earlier
    )
