"""Compares two answers of RAS: whether a job goes on, and if not, which rank is behind in which operation. Pure.

NCCL counts what a rank has launched, not what is done: a rank whose count is lower has not come to the operation in
which the others wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum

import msgspec

from profd.daemon.collectives.status import DEAD, FAILED, MISSING, RUNNING, Communicator, RankState, Status


class Progress(Enum):
    """What two answers show.

    GOES_ON: counts changed. LOST: a process does not answer any more, or is dead. BEHIND: counts stand and differ: some
    ranks have launched less. MISMATCH: some launched another operation than the others. ALIKE: counts stand and are
    equal: the GPU or the network. UNKNOWN: the answers do not say.
    """

    GOES_ON = "goes on"
    LOST = "lost"
    BEHIND = "behind"
    MISMATCH = "mismatch"
    ALIKE = "alike"
    UNKNOWN = "unknown"


class Behind(msgspec.Struct, frozen=True):
    """A rank that the others wait for: in ``operation``, of which it launched ``launched`` and they ``expected``.

    ``rank`` is that of the job where it is known, else that of the communicator.
    """

    rank: int
    host: str
    pid: int
    operation: str
    launched: int | None
    expected: int | None
    own_operation: str = ""
    """The operation that it launched in its place, where there is one."""


class Verdict(msgspec.Struct, frozen=True):
    """What two answers show of a job, and the ranks that are behind; ``waiting`` is how many ranks wait for them."""

    progress: Progress
    behind: tuple[Behind, ...] = ()
    waiting: int = 0


def behind_alone(status: Status) -> dict[tuple[str, int], int]:
    """Return by how many collectives each process is behind all others of its communicators; 0 for all but one."""
    found: dict[tuple[str, int], int] = {}
    for one in status.communicators:
        totals = sorted((sum(rank.counts.values()), rank.process) for rank in one.ranks if rank.counts)
        for total, process in totals if len(totals) > 1 else ():
            ahead = totals[1][0] - total if process == totals[0][1] else 0
            found[process] = max(found.get(process, 0), ahead)
    return found


def compare(before: Status | None, now: Status | None) -> Verdict:
    """Return what two answers of one job show; UNKNOWN where there are no two."""
    if before is None or now is None:
        return Verdict(Progress.UNKNOWN)
    if _counts(before) != _counts(now):
        return Verdict(Progress.GOES_ON)
    ranks = now.world_ranks()
    lost: dict[tuple[str, int], Behind] = {}
    behind: dict[tuple[str, int], Behind] = {}
    odd: dict[tuple[str, int], Behind] = {}
    ahead: set[tuple[str, int]] = set()
    for one in now.communicators:
        for rank in one.ranks:
            if rank.state in (DEAD, MISSING, FAILED):
                operation = max(_most(one).items(), key=lambda item: item[1], default=("", 0))[0]
                lost[rank.process] = _behind(rank, ranks, operation, None, None)
        _judge(one, ranks, behind, odd, ahead)
    waiting = max((one.size for one in now.communicators), default=0)
    if lost:
        return Verdict(Progress.LOST, _ordered(lost.values()), waiting - len(lost))
    # Who is behind in one communicator may itself wait in another, for a rank that is behind there.
    found = {process: one for process, one in behind.items() if process not in ahead} or behind
    for progress, those in ((Progress.BEHIND, found), (Progress.MISMATCH, odd)):
        if those:
            return Verdict(progress, _ordered(those.values()), max(waiting - len(those), 0))
    return Verdict(Progress.ALIKE if now.has_counts and now.communicators else Progress.UNKNOWN, (), waiting)


def _counts(status: Status) -> object:
    return {
        one.key: (one.usual, sorted((rank.rank, sorted(rank.counts.items())) for rank in one.ranks))
        for one in status.communicators
    }


def _most(one: Communicator) -> dict[str, int]:
    """Return how often each operation was launched by the ranks that launched it most."""
    most = dict(one.usual)
    for rank in one.ranks:
        for operation, count in rank.counts.items():
            most[operation] = max(most.get(operation, 0), count)
    return most


def _judge(
    one: Communicator,
    ranks: Mapping[tuple[str, int], int],
    behind: dict[tuple[str, int], Behind],
    odd: dict[tuple[str, int], Behind],
    ahead: set[tuple[str, int]],
) -> None:
    """Sort the ranks of a communicator into those behind, those with another operation, and those ahead."""
    known = [rank for rank in one.ranks if rank.counts and rank.state == RUNNING]
    totals = [sum(rank.counts.values()) for rank in known]
    if one.usual:
        totals.append(sum(one.usual.values()))
    if not totals:
        return
    most, counts = max(totals), _most(one)
    # Ranks with equal counts are of one kind. The most common of those ahead is what is expected.
    kinds = Counter(_kind(rank.counts) for rank in known if sum(rank.counts.values()) == most)
    if sum(one.usual.values()) == most and one.usual:
        kinds[_kind(one.usual)] += one.size - len(one.ranks)
    (expected, number), *others = kinds.most_common()
    is_tie = bool(others) and others[0][1] == number
    for rank in known:
        is_behind, kind = sum(rank.counts.values()) < most, _kind(rank.counts)
        if min(totals) < most and not is_behind:
            ahead.add(rank.process)
        elif is_behind or kind != expected or is_tie:
            theirs = dict(others[0][0] if kind == expected else expected)
            short = {name: count - rank.counts.get(name, 0) for name, count in theirs.items()}
            operation = max(short, key=lambda name: (short[name], counts[name]))
            instead = min(short, key=short.__getitem__)
            where = behind if is_behind else odd
            found = _behind(rank, ranks, operation, rank.counts.get(operation, 0), theirs[operation])
            where[rank.process] = msgspec.structs.replace(found, own_operation=instead if short[instead] < 0 else "")


def _kind(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items()))


def _behind(
    rank: RankState, ranks: Mapping[tuple[str, int], int], operation: str, launched: int | None, expected: int | None
) -> Behind:
    return Behind(ranks.get(rank.process, rank.rank), rank.host, rank.pid, operation, launched, expected)


def _ordered(found: Iterable[Behind]) -> tuple[Behind, ...]:
    return tuple(sorted(found, key=lambda one: one.rank))
