"""Compares two answers of RAS: whether the job goes on, and if not, which rank is behind in what.

The module is pure. NCCL counts the operations that a rank has launched, not those that are done: a
rank whose count is lower has not come to the operation in which the others wait.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from enum import Enum

import msgspec

from profd.daemon.collectives.status import (
    DEAD,
    FAILED,
    MISSING,
    RUNNING,
    Communicator,
    HostPid,
    RankState,
    Status,
)


class Progress(Enum):
    """What two answers show.

    GOES_ON: counts changed. LOST: a process answers no more, is dead or has failed. BEHIND: counts
    stand, and some ranks have launched less. MISMATCH: some launched another operation than the
    others. ALIKE: counts stand and are equal, so that the GPU or the network is the cause. UNKNOWN:
    the answers do not say.
    """

    GOES_ON = "goes on"
    LOST = "lost"
    BEHIND = "behind"
    MISMATCH = "mismatch"
    ALIKE = "alike"
    UNKNOWN = "unknown"


class Behind(msgspec.Struct, frozen=True):
    """A rank that the others wait for in ``operation``, which it launched ``launched`` times only.

    ``rank`` is that of the job if it is known, else that of the communicator. ``instead`` is the
    operation it launched in its place, or how it was lost.
    """

    rank: int
    host: str
    pid: int
    operation: str
    launched: int
    instead: str


class DesyncVerdict(msgspec.Struct, frozen=True):
    """What two answers show of a job, the ranks that are behind, and how many wait for them."""

    progress: Progress
    behind: tuple[Behind, ...] = ()
    waiting: int = 0


Places = defaultdict[Progress, dict[HostPid, Behind]]
"""The processes of a job, by what each is in a communicator."""


def compare(before: Status | None, now: Status | None) -> DesyncVerdict:
    """Return what two answers of one job show; UNKNOWN if there are no two."""
    if before is None or now is None:
        return DesyncVerdict(Progress.UNKNOWN)
    if _counts(now) != _counts(before):
        return DesyncVerdict(Progress.GOES_ON)
    size = max((one.size for one in now.communicators), default=0)
    found = _judge(now)
    # A rank that is behind in one communicator may itself wait in another, for a rank that is
    # behind there.
    behind, ahead = found[Progress.BEHIND], found[Progress.GOES_ON]
    found[Progress.BEHIND] = {key: one for key, one in behind.items() if key not in ahead} or behind
    for progress in (Progress.LOST, Progress.BEHIND, Progress.MISMATCH):
        if those := sorted(found[progress].values(), key=lambda one: one.rank):
            return DesyncVerdict(progress, tuple(those), max(size - len(those), 0))
    return DesyncVerdict(Progress.ALIKE if size else Progress.UNKNOWN, (), size)


def _counts(status: Status) -> dict[HostPid, Mapping[str, int]]:
    """Return what each rank of each communicator has launched."""
    return {(one.key, rank.rank): rank.counts for one in status.communicators for rank in one.ranks}


def _judge(status: Status) -> Places:
    """Return the processes of a job that stands, by what each is in a communicator.

    A process is lost, behind, ahead of others (GOES_ON), or launched another operation (MISMATCH).
    """
    world = status.world_ranks()
    found = Places(dict)
    for one in status.communicators:
        for progress, rank, operation, instead in (*_lost(one), *_apart(one)):
            number, launched = world.get(rank.process, rank.rank), rank.counts.get(operation, 0)
            found[progress][rank.process] = Behind(
                number, rank.host, rank.pid, operation, launched, instead
            )
    return found


_Judged = tuple[Progress, RankState, str, str]
"""A rank, with the operation in which it is lost or behind, and what it did instead."""


def _lost(one: Communicator) -> Iterator[_Judged]:
    """Yield the lost ranks of a communicator, each with the most common operation."""
    for rank in one.ranks:
        if rank.state in (DEAD, MISSING, FAILED):
            most = max(one.ranks, key=lambda other: other.total).counts
            yield Progress.LOST, rank, max(most, key=most.__getitem__, default=""), rank.state


def _apart(one: Communicator) -> Iterator[_Judged]:
    """Yield the ranks that are behind, ahead or elsewhere, if a communicator stands."""
    known = [rank for rank in one.ranks if rank.counts and rank.state == RUNNING]
    if not known:
        return
    least, most = min(rank.total for rank in known), max(rank.total for rank in known)
    # Ranks with equal counts are of one kind. The most common of those ahead is expected.
    kinds = Counter(
        tuple(sorted(rank.counts.items())) for rank in known if rank.total == most
    ).most_common()
    expected, is_tie = dict(kinds[0][0]), len(kinds) > 1 and kinds[0][1] == kinds[1][1]
    for rank in known:
        if least < most == rank.total:
            yield Progress.GOES_ON, rank, "", ""
        elif rank.counts != expected or is_tie:
            theirs = dict(kinds[1][0]) if rank.counts == expected else expected
            progress = Progress.BEHIND if rank.total < most else Progress.MISMATCH
            yield progress, rank, *_difference(rank.counts, theirs)


def _difference(counts: Mapping[str, int], expected: Mapping[str, int]) -> tuple[str, str]:
    """Return the operation that is missing most, and the one launched too often, if any."""
    short = {name: count - counts.get(name, 0) for name, count in expected.items()}
    operation = max(short, key=lambda name: (short[name], expected[name]))
    instead = min(short, key=short.__getitem__)
    return operation, instead if short[instead] < 0 else ""
