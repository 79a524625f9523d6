"""The lines of a stored recording: what a real session was given, in the order in which it
happened.

``tests/recordings/README.md`` describes the format. Each line is a JSON object; its ``kind`` says
which one.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

import msgspec

from profd.daemon.hangs.look import Look, StackState
from profd.daemon.stacks.assembly import Threads
from profd.daemon.stacks.pyspy import PySpyOutput
from profd.daemon.stacks.source import Statement
from profd.daemon.store.records import FrameDescription, Identity, Record, RunStarted
from profd.daemon.timerange import EVER, TimeRange


class Header(msgspec.Struct, frozen=True, tag_field="kind", tag="header"):
    """Where a recording comes from."""

    date: str
    program: str
    interpreter: str
    py_spy: str
    torch: str
    machine: str
    rate_hz: int


class Started(msgspec.Struct, frozen=True, tag_field="kind", tag="run started"):
    """The first record of the run."""

    started: RunStarted


class PySpyRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="py-spy record"):
    """One ``py-spy record``; ``chain`` numbers the chain of recordings that it is a link of."""

    pid: int
    start_ticks: int
    chain: int
    rate_hz: int
    spawned_ns: int
    sampling_ns: int
    ended_ns: int
    cpu_ns: int
    wall_jump_ns: int
    said: str
    trace: str
    keep: tuple[int | None, int | None]
    threads: Threads

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.start_ticks)

    @property
    def output(self) -> PySpyOutput:
        return PySpyOutput(
            self.trace.encode(), self.said.encode(), self.spawned_ns, self.sampling_ns, self.ended_ns, self.cpu_ns,
            self.wall_jump_ns,
        )  # fmt: skip

    @property
    def span(self) -> TimeRange:
        """What the chain kept of it."""
        from_ns, to_ns = self.keep
        return TimeRange(from_ns or EVER.from_ns, to_ns or EVER.to_ns)


class Put(msgspec.Struct, frozen=True, tag_field="kind", tag="record"):
    """A record that went to the writer, and that no other line leads to."""

    record: Record


class Looked(msgspec.Struct, frozen=True, tag_field="kind", tag="look"):
    """What a look for a hang saw, of the processes that train or of all."""

    at_ns: int
    mains_only: bool
    standing: tuple[StackState, ...]
    io_bytes: int
    switches: int
    others: int
    cpu_s: tuple[tuple[int | None, float], ...]
    servers: tuple[int, ...]

    @classmethod
    def of(cls, look: Look, *, mains_only: bool) -> Looked:
        """Return the line of a look."""
        return cls(
            look.at_ns, mains_only, look.standing, look.io_bytes, look.switches, look.others,
            tuple(look.cpu_s.items()), tuple(sorted(look.servers)),
        )  # fmt: skip

    def look(self, at_ns: int) -> Look:
        """Return what was seen as the look of a time."""
        return Look(
            at_ns, self.standing, self.io_bytes, self.switches, dict(self.cpu_s),
            others=self.others, servers=frozenset(self.servers),
        )  # fmt: skip


class Diary(msgspec.Struct, frozen=True, tag_field="kind", tag="diary"):
    """What the program says of itself. All times are nanoseconds of the epoch.

    ``tracks`` is, for each thread that goes through ``turns`` in turn, when its next one began.
    ``phases`` is when each phase began. ``steps`` is how many steps were made at a time.
    ``planted`` is the rule of the cause that the program has, "" where it is healthy, and None
    where it says nothing. ``spent`` is how many nanoseconds the cause had taken at a time.
    ``late_rank`` is the rank that is slow.
    """

    turns: tuple[str, ...] = ()
    tracks: tuple[tuple[int, ...], ...] = ()
    phases: tuple[tuple[int, str], ...] = ()
    steps: tuple[tuple[int, int], ...] = ()
    planted: str | None = None
    spent: tuple[tuple[int, int], ...] = ()
    late_rank: int | None = None


class Line(msgspec.Struct, frozen=True):
    """What is known of a line of a library's source."""

    text: str | None
    statement: Statement | None


class File(msgspec.Struct, frozen=True):
    """What is known of a library's source file."""

    about: FrameDescription
    lines: dict[str, Line]


class Sources(msgspec.Struct, frozen=True, tag_field="kind", tag="sources"):
    """The source files of the target: this project's own as they are, of all others what the
    session asked of them.
    """

    own: dict[str, str]
    files: dict[str, File]


StoredLine = Header | Started | PySpyRecord | Put | Looked | Diary | Sources
_decoder = msgspec.json.Decoder(StoredLine)


def read_lines(path: Path) -> list[StoredLine]:
    return [_decoder.decode(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def encode_line(line: StoredLine) -> bytes:
    """Return a line as it is stored, sets in order."""
    return msgspec.json.encode(msgspec.to_builtins(line, str_keys=True, order="deterministic"))


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Store a recording: the same lines give the same bytes."""
    path.write_bytes(gzip.compress(b"".join(line + b"\n" for line in lines), 9, mtime=0))
