"""What NCCL RAS says of a job: its communicators and their ranks.

It says the process, the state and the counts of collectives of each rank. NCCL 2.28.7 and later
answer in JSON, with all counts. Earlier versions answer in text for people: it has counts of a
communicator only if they differ, and ranks only if few are alike. Shapes are those of
``src/ras/client_support.cc`` of NCCL 2.24 to 2.30. Nothing of an answer is trusted: what does not
fit raises ``BadAnswer``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import msgspec

MOST_RANKS = 1 << 17
RUNNING, INIT, FINALIZE, ABORT, FAILED, MISSING, DEAD = (
    "running", "init", "finalize", "abort", "failed", "missing", "dead",
)  # fmt: skip
_IN_PROGRESS = 7  # ncclInProgress


class BadAnswer(Exception):
    """What came is no status of NCCL's; the text says what was wrong."""


class RankState(msgspec.Struct, frozen=True):
    """A rank of a communicator.

    ``pid`` is that of the rank's own PID namespace, 0 if it is unknown. ``counts`` is how many
    collectives it has launched, by operation; empty if that is unknown.
    """

    rank: int
    host: str = ""
    pid: int = 0
    state: str = RUNNING
    counts: Mapping[str, int] = {}

    @property
    def process(self) -> tuple[str, int]:
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
    """One answer.

    ``has_counts`` is False if equal counts are not given, as in text: that they stand is no proof.
    """

    version: str
    communicators: tuple[Communicator, ...]
    has_counts: bool

    def processes(self) -> set[int]:
        return {rank.pid for one in self.communicators for rank in one.ranks if rank.pid}

    def world_ranks(self) -> dict[tuple[str, int], int]:
        """Return the rank of each process in the job: that in the communicator of all processes.

        It is empty if several such communicators differ, or if a process has several GPUs: then a
        rank is not a process.
        """
        known = {rank.process for one in self.communicators for rank in one.ranks if rank.pid}
        whole: list[dict[tuple[str, int], int]] = []
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
    nccl_version: str
    communicators: list[_Communicator]


_DECODER = msgspec.json.Decoder(_Answer)


def parse(answer: bytes) -> Status:
    """Return the status that an answer in JSON or text holds; raises BadAnswer."""
    return (
        _parse_json(answer)
        if answer.lstrip()[:1] == b"{"
        else _parse_text(answer.decode(errors="replace"))
    )


def _parse_json(answer: bytes) -> Status:
    try:
        found = _DECODER.decode(answer)
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
    return Status(found.nccl_version[:40], tuple(communicators), True)


def _rank(found: _Rank, *, is_missing: bool = False) -> RankState:
    flags, state = found.status or _Flags(), RUNNING
    if is_missing:
        state = DEAD if flags.considered_dead else MISSING if flags.unresponsive else FINALIZE
    elif flags.abort_flag:
        state = ABORT
    elif flags.finalize_called or flags.destroy_flag:
        state = FINALIZE
    elif flags.init_state == _IN_PROGRESS:
        state = INIT
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


_VERSION = re.compile(r"NCCL version (\S{1,40})")
_GROUP = re.compile(r"^ *(\d{1,6}) +\d+ +\d+ +[\d-]+ +(\d{1,7}) +\d+ +[A-Z]+ +[A-Z,]+ *$")
_HEADING = re.compile(r"^#((\d{1,6})-\d{1,9} \([0-9a-f]{1,16}\)) (MISMATCH|INCOMPLETE|ERROR)")
_OPERATION = re.compile(r"have different (\w{1,20}) operation counts")
_COUNT = re.compile(
    r" ha(?:ve|s) (?:launched up to operation (\d{1,18})|not launched any operations)"
)
_RANK = re.compile(
    r"^ +Rank (\d{1,7})\b.* -- (?:GPU .* managed by process (\d{1,9}) on node (\S{1,64})|\[process)"
)
_DEAD = re.compile(r"^  Process (\d{1,9}) on node (\S{1,64}) managing GPU")


def _parse_text(answer: str) -> Status:
    """Read text: the ranks that are missing, and counts if they differ.

    Ranks that are not listed have the counts of the most ranks.
    """
    version = _VERSION.search(answer[:400])
    if version is None or "Communicators..." not in answer:
        raise BadAnswer("neither JSON nor the text of a status")
    lines = answer.splitlines()
    parts, dead = _parts(lines), _dead(lines)
    if sum(part.size for part in parts.values()) > MOST_RANKS:
        raise BadAnswer("more ranks than there can be")
    communicators = tuple(
        _checked(Communicator(key, part.size, part.ranks(dead))) for key, part in parts.items()
    )
    return Status(version[1], communicators, False)


def _dead(lines: list[str]) -> set[tuple[str, int]]:
    """Return the processes that the text calls dead."""
    begin = lines.index("DEAD") if "DEAD" in lines else len(lines)
    rows = map(_DEAD.match, itertools.takewhile(bool, lines[begin:]))
    return {(row[2], int(row[1])) for row in rows if row}


def _parts(lines: list[str]) -> dict[str, _Part]:
    """Return what the text says of communicators, by key."""
    sizes = {int(found[1]): int(found[2]) for found in map(_GROUP.match, lines) if found}
    parts: dict[str, _Part] = {}
    part, is_missing, operation, count = _Part(0), False, "", 0
    for line in lines:
        if heading := _HEADING.match(line):
            part = parts.setdefault(heading[1], _Part(sizes.get(int(heading[2]), 0)))
            is_missing, operation = heading[3] == "INCOMPLETE", ""
        elif found := _OPERATION.search(line):
            operation = found[1]
        elif found := _COUNT.search(line):
            count = int(found[1] or 0)
            part.usual.setdefault(operation, count)  # the most frequent count comes first
        if row := _RANK.match(line):
            number = int(row[1])
            part.places[number] = (row[3] or "", int(row[2] or 0))
            if is_missing:
                part.missing.add(number)
            elif operation:
                part.counts.setdefault(number, {})[operation] = count
    return parts


class _Part:
    """What text says of a communicator: places and counts of some ranks, and the usual counts."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.places: dict[int, tuple[str, int]] = {}
        self.counts: dict[int, dict[str, int]] = {}
        self.usual: dict[str, int] = {}
        self.missing: set[int] = set()

    def ranks(self, dead: set[tuple[str, int]]) -> tuple[RankState, ...]:
        found = []
        for number in range(self.size) if self.usual else sorted(self.places):
            place = self.places.get(number, ("", 0))
            state = DEAD if place in dead else MISSING if number in self.missing else RUNNING
            counts = {**self.usual, **self.counts.get(number, {})} if state == RUNNING else {}
            found.append(RankState(number, *place, state, counts))
        return tuple(found)
