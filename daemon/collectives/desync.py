"""Compares two answers of RAS to tell whether a job goes on.

If not, it says which rank is behind in which operation. The module is pure.

NCCL counts what a rank has launched, not what is done: a rank whose count is lower has not come to
the operation in which the others wait.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from enum import Enum

import msgspec

from profd.daemon.collectives.status import (
    DEAD,
    FAILED,
    MISSING,
    RUNNING,
    Communicator,
    RankState,
    Status,
)


class Progress(Enum):
    """What two answers show.

    GOES_ON: counts changed. LOST: a process does not answer any more, is dead or failed. BEHIND:
    counts stand, and some ranks have launched less. MISMATCH: some launched another operation than
    the others. ALIKE: counts stand and are equal: the GPU or the network. UNKNOWN: the answers do
    not say.
    """

    GOES_ON = "goes on"
    LOST = "lost"
    BEHIND = "behind"
    MISMATCH = "mismatch"
    ALIKE = "alike"
    UNKNOWN = "unknown"


class Behind(msgspec.Struct, frozen=True):
    """A rank that the others wait for in ``operation``.

    It launched this ``launched`` times, less often than they.

    ``rank`` is that of the job where it is known, else that of the communicator. ``instead`` is
    what it launched in place of the operation, or how it was lost.
    """

    rank: int
    host: str
    pid: int
    operation: str
    launched: int
    instead: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """What two answers show of a job, and the ranks that are behind.

    ``waiting`` is how many ranks wait for them.
    """

    progress: Progress
    behind: tuple[Behind, ...] = ()
    waiting: int = 0


def behind_alone(status: Status) -> dict[tuple[str, int], int]:
    """Return by how many collectives each process is behind all others of its communicators.

    0 for all but one.
    """
    found: dict[tuple[str, int], int] = {}
    for one in status.communicators:
        totals = sorted((rank.total, rank.process) for rank in one.ranks if rank.counts)
        for total, process in totals if len(totals) > 1 else ():
            ahead = totals[1][0] - total if process == totals[0][1] else 0
            found[process] = max(found.get(process, 0), ahead)
    return found


def compare(before: Status | None, now: Status | None) -> Verdict:
    """Return what two answers of one job show; UNKNOWN where there are no two."""
    if before is None or now is None:
        return Verdict(Progress.UNKNOWN)
    counts, counts_before = (
        {(one.key, rank.rank): rank.counts for one in status.communicators for rank in one.ranks}
        for status in (now, before)
    )
    if counts != counts_before:
        return Verdict(Progress.GOES_ON)
    world, size = now.world_ranks(), max((one.size for one in now.communicators), default=0)
    found: defaultdict[Progress, dict[tuple[str, int], Behind]] = defaultdict(dict)
    for one in now.communicators:
        for progress, rank, operation, instead in _judge(one):
            number, launched = world.get(rank.process, rank.rank), rank.counts.get(operation, 0)
            found[progress][rank.process] = Behind(
                number, rank.host, rank.pid, operation, launched, instead
            )
    # A rank that is behind in one communicator may itself wait in another, for a rank that is
    # behind there.
    behind = found[Progress.BEHIND]
    found[Progress.BEHIND] = {
        key: one for key, one in behind.items() if key not in found[Progress.GOES_ON]
    } or behind
    for progress in (Progress.LOST, Progress.BEHIND, Progress.MISMATCH):
        if those := sorted(found[progress].values(), key=lambda one: one.rank):
            return Verdict(progress, tuple(those), max(size - len(those), 0))
    return Verdict(Progress.ALIKE if now.has_counts and size else Progress.UNKNOWN, (), size)


def _judge(one: Communicator) -> Iterator[tuple[Progress, RankState, str, str]]:
    """Yield the ranks of a communicator that stands, each with its operation.

    A rank is behind or lost, or ahead (GOES_ON).
    """
    for rank in one.ranks:
        if rank.state in (DEAD, MISSING, FAILED):
            most = max(one.ranks, key=lambda other: other.total).counts
            yield Progress.LOST, rank, max(most, key=most.__getitem__, default=""), rank.state
    known = [rank for rank in one.ranks if rank.counts and rank.state == RUNNING]
    totals = [rank.total for rank in known] or [0]
    # Ranks with equal counts are of one kind. The most common of those ahead is what is expected.
    kinds = Counter(
        tuple(sorted(rank.counts.items())) for rank in known if rank.total == max(totals)
    ).most_common()
    is_tie = len(kinds) > 1 and kinds[0][1] == kinds[1][1]
    for rank in known:
        is_behind, expected = rank.total < max(totals), dict(kinds[0][0])
        if min(totals) < max(totals) and not is_behind:
            yield Progress.GOES_ON, rank, "", ""
        elif rank.counts != expected or is_tie:
            theirs = dict(kinds[1][0]) if rank.counts == expected else expected
            short = {name: count - rank.counts.get(name, 0) for name, count in theirs.items()}
            operation = max(short, key=lambda name: (short[name], theirs[name]))
            instead = min(short, key=short.__getitem__)
            progress = Progress.BEHIND if is_behind else Progress.MISMATCH
            yield progress, rank, operation, instead if short[instead] < 0 else ""
