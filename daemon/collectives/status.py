"""What NCCL RAS says of a job: communicators, and of each rank its process, state and counts of collectives.

NCCL 2.28.7 and later answer in JSON, with all counts. Before that there is text for people: it has counts of a
communicator only where they differ, and ranks only where few are alike. Shapes are those of
``src/ras/client_support.cc`` of NCCL 2.24 to 2.30. Nothing of an answer is trusted: what does not fit raises
``BadAnswer``.
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
ANY_OPERATION = "collective"
"""What NCCL before 2.26 counts, which does not say which operation."""
_IN_PROGRESS = 7  # ncclInProgress


class BadAnswer(Exception):
    """What came is no status of NCCL's; the text says what was wrong."""


class RankState(msgspec.Struct, frozen=True):
    """A rank of a communicator. ``pid`` is as in the rank's own PID namespace, 0 where it is unknown.

    ``counts`` is how many collectives it has launched, by operation; empty where that is unknown.
    """

    rank: int
    host: str = ""
    pid: int = 0
    state: str = RUNNING
    counts: Mapping[str, int] = {}

    @property
    def process(self) -> tuple[str, int]:
        """What tells its process from others; one of its own where the PID is unknown."""
        return self.host, self.pid or -1 - self.rank

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class Communicator(msgspec.Struct, frozen=True):
    """A communicator of ``size`` ranks; ``key`` tells it from others. ``ranks`` are those that are known."""

    key: str
    size: int
    ranks: tuple[RankState, ...]


class Status(msgspec.Struct, frozen=True):
    """One answer. ``has_counts`` is False where equal counts are not given, as in text: that they stand is no proof."""

    version: str
    communicators: tuple[Communicator, ...]
    has_counts: bool
    timeouts: int = 0

    def processes(self) -> set[int]:
        return {rank.pid for one in self.communicators for rank in one.ranks if rank.pid}

    def world_ranks(self) -> dict[tuple[str, int], int]:
        """Return the rank of each process in the job: that in the one communicator which has all processes.

        Empty where there are several such or a process has several GPUs: then a rank is not a process.
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


class _Ras(msgspec.Struct):
    timeouts_count: int = 0


class _Answer(msgspec.Struct):
    nccl_version: str
    communicators: list[_Communicator]
    ras: _Ras = msgspec.field(default_factory=_Ras)


_DECODER = msgspec.json.Decoder(_Answer)


def parse(answer: bytes) -> Status:
    """Return the status that an answer in JSON or text holds; raises BadAnswer."""
    return _parse_json(answer) if answer.lstrip()[:1] == b"{" else _parse_text(answer.decode(errors="replace"))


def _parse_json(answer: bytes) -> Status:
    try:
        found = _DECODER.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(f"no status in JSON ({error})") from None
    communicators = []
    for one in found.communicators:
        ranks = [*map(_rank, one.ranks), *(_rank(rank, is_missing=True) for rank in one.missing_ranks)]
        communicators.append(_checked(Communicator(f"{one.hash} {one.secondary_hash}", one.size, tuple(ranks))))
    return Status(found.nccl_version[:40], tuple(communicators), True, found.ras.timeouts_count)


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
    # -1 and "unknown" are what NCCL says of a process that it has lost.
    pid = found.pid if 0 < found.pid < 1 << 31 else 0
    counts = {name[:20]: count for name, count in list(found.collective_counts.items())[:16] if count >= 0}
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
_HEADING = re.compile(r"^#(\d{1,6})-(\d{1,9}) \(([0-9a-f]{1,16})\) (MISMATCH|INCOMPLETE|ERROR)")
_OPERATION = re.compile(r"have different (\w{1,20}) operation counts")
_SAID = r"(?:launched up to operation (?P<count>\d{1,18})|(?P<none>not launched any)|status (?P<state>[A-Z]+))"
_ALIKE = re.compile(rf"^ +\d{{1,7}} ranks have {_SAID}")
_RANK = re.compile(
    rf"^ +Rank (?P<rank>\d{{1,7}})(?: has {_SAID}[\w ]*)? -- "
    r"(?:GPU .*? managed by process (?P<pid>\d{1,9}) on node (?P<host>\S{1,64})|\[process)"
)
_DEAD = re.compile(r"^  Process (\d{1,9}) on node (\S{1,64}) managing GPU")
_STATES = {"NOCOMM": FINALIZE, "INIT": INIT, "FINALIZE": FINALIZE, "ABORT": ABORT}


def _parse_text(answer: str) -> Status:
    version = _VERSION.search(answer[:400])
    if version is None or "Communicators..." not in answer:
        raise BadAnswer("neither JSON nor the text of a status")
    lines = answer.splitlines()
    sizes = {int(found[1]): int(found[2]) for found in map(_GROUP.match, lines) if found}
    begin = lines.index("DEAD") if "DEAD" in lines else len(lines)
    rows = itertools.takewhile(bool, lines[begin:])
    dead = {(found[2], int(found[1])) for found in map(_DEAD.match, rows) if found}
    found: dict[str, _TextCommunicator] = {}
    current: _TextCommunicator | None = None
    for line in lines:
        if heading := _HEADING.match(line):
            key, size = f"{heading[3]} {heading[1]}-{heading[2]}", sizes.get(int(heading[1]), 0)
            current = found.setdefault(key, _TextCommunicator(key, size))
            current.operation, current.said = "", ("", MISSING if heading[4] == "INCOMPLETE" else "")
        elif current is not None and line.startswith("  "):
            current.take(line)
        elif line:  # an empty one parts operations
            current = None
    if sum(one.size for one in found.values()) > MOST_RANKS:
        raise BadAnswer("more ranks than there can be")
    return Status(version[1], tuple(_checked(one.communicator(dead)) for one in found.values()), False)


class _TextCommunicator:
    """A communicator that is being read from text, line by line."""

    def __init__(self, key: str, size: int) -> None:
        self.key, self.size, self.operation = key, size, ""
        self.said: tuple[int | str, str] = "", ""
        """The count and the state of the ranks that are listed now; empty where these are not said."""
        self._ranks: dict[int, RankState] = {}
        self._usual: dict[str, int] = {}

    def take(self, line: str) -> None:
        if operation := _OPERATION.search(line):
            self.operation, self.said = operation[1], ("", "")
        elif alike := _ALIKE.match(line):
            self.said = _said(alike)
            if self.operation and self.said[0] != "":  # the most frequent count comes first
                self._usual.setdefault(self.operation, int(self.said[0]))
        elif row := _RANK.match(line):
            count, state = self.said if _said(row) == ("", "") else _said(row)
            number = int(row["rank"])
            known = self._ranks.get(number) or RankState(number, row["host"] or "", int(row["pid"] or 0))
            counts = {**known.counts, **({self.operation: int(count)} if self.operation and count != "" else {})}
            self._ranks[number] = msgspec.structs.replace(known, state=state or known.state, counts=counts)

    def communicator(self, dead: set[tuple[str, int]]) -> Communicator:
        """Return what was read; a rank that is not listed for an operation has the count of the most."""
        ranks = []
        for number in range(self.size) if self._usual else sorted(self._ranks):
            rank = self._ranks.get(number, RankState(number))
            state = DEAD if rank.process in dead else rank.state
            counts = {} if state in (DEAD, MISSING) else {**self._usual, **rank.counts}
            ranks.append(msgspec.structs.replace(rank, state=state, counts=counts))
        return Communicator(self.key, self.size, tuple(ranks))


def _said(row: re.Match[str]) -> tuple[int | str, str]:
    """Return the count and the state that a line says, each empty where it does not."""
    count = int(row["count"]) if row["count"] else 0 if row["none"] else ""
    return count, _STATES.get(row["state"] or "", "")
