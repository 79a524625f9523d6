"""What NCCL RAS says of a job: its communicators and their ranks.

It says the process, the state and the counts of collectives of each rank. Its shape is that of
``src/ras/client_support.cc`` of NCCL 2.28.7 to 2.30, in JSON. Nothing of an answer is trusted: what
does not fit raises ``BadAnswer``.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MOST_RANKS = 1 << 17
RUNNING, CHANGING, FAILED, MISSING, DEAD = "running", "changing", "failed", "missing", "dead"
"""The states of a rank; one that is CHANGING makes, ends or aborts its communicator."""
_IN_PROGRESS = 7  # ncclInProgress
HostPid = tuple[str, int]
"""A process, by its host and the PID that it has there."""


class BadAnswer(Exception):
    """What came is no status of NCCL's; the text says what was wrong."""


class RankState(msgspec.Struct, frozen=True):
    """A rank of a communicator.

    ``pid`` is that of the rank's own PID namespace, 0 if it is unknown. ``counts`` is how many
    collectives it has launched, by operation; empty if that is unknown.
    """

    rank: int
    host: str
    pid: int
    state: str
    counts: Mapping[str, int]

    @property
    def process(self) -> HostPid:
        """What tells its process from others; a number of its own if the PID is unknown."""
        return self.host, self.pid or -1 - self.rank

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class Communicator(msgspec.Struct, frozen=True):
    """A communicator of ``size`` ranks; ``ranks`` are the known ones, ``key`` identifies it."""

    key: str
    size: int
    ranks: tuple[RankState, ...]


class Status(msgspec.Struct, frozen=True):
    """One answer."""

    communicators: tuple[Communicator, ...]

    def processes(self) -> set[int]:
        return {rank.pid for one in self.communicators for rank in one.ranks if rank.pid}

    def world_ranks(self) -> dict[HostPid, int]:
        """Return the rank of each process in the job: that in the communicator of all processes.

        It is empty if several such communicators differ, or if a process has several GPUs: then a
        rank is not a process.
        """
        known = {rank.process for one in self.communicators for rank in one.ranks if rank.pid}
        whole: list[dict[HostPid, int]] = []
        for one in self.communicators:
            ranks = {rank.process: rank.rank for rank in one.ranks if rank.pid}
            if one.size == len(one.ranks) == len(ranks) and ranks.keys() == known:
                whole.append(ranks)
        return whole[0] if whole and all(ranks == whole[0] for ranks in whole) else {}


class _Flags(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = 0
    status: _Flags | None = None
    collective_counts: dict[str, int] = {}


class _Communicator(msgspec.Struct):
    hash: str
    size: int
    secondary_hash: str = ""
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []


class _Answer(msgspec.Struct):
    communicators: list[_Communicator]


def parse(answer: bytes) -> Status:
    """Return the status that an answer in JSON holds; raises BadAnswer."""
    try:
        found = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(f"no status in JSON ({error})") from None
    communicators = []
    for one in found.communicators:
        ranks = [
            *map(_rank, one.ranks),
            *(_rank(rank, is_missing=True) for rank in one.missing_ranks),
        ]
        communicators.append(
            _checked(Communicator(f"{one.hash} {one.secondary_hash}", one.size, tuple(ranks)))
        )
    return Status(tuple(communicators))


def _rank(found: _Rank, *, is_missing: bool = False) -> RankState:
    flags, state = found.status or _Flags(), RUNNING
    if is_missing:
        state = DEAD if flags.considered_dead else MISSING if flags.unresponsive else CHANGING
    elif (
        flags.abort_flag
        or flags.finalize_called
        or flags.destroy_flag
        or flags.init_state == _IN_PROGRESS
    ):
        state = CHANGING
    elif flags.init_state or flags.async_error not in (0, _IN_PROGRESS):
        state = FAILED
    # Of a process that it has lost NCCL says -1 and "unknown".
    pid = found.pid if 0 < found.pid < 1 << 31 else 0
    counts = {
        name[:20]: count for name, count in list(found.collective_counts.items())[:16] if count >= 0
    }
    return RankState(found.rank, found.host[:64], pid, state, counts)


def _checked(found: Communicator) -> Communicator:
    if not 0 < found.size <= MOST_RANKS or len(found.ranks) > found.size:
        raise BadAnswer(f"a communicator of {found.size} ranks that lists {len(found.ranks)}")
    numbers = {rank.rank for rank in found.ranks}
    if len(numbers) < len(found.ranks) or any(not 0 <= number < found.size for number in numbers):
        raise BadAnswer("ranks of a communicator that cannot be")
    return found
