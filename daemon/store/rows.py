"""What the reader returns: frozen rows of the run file.

Times are nanoseconds of the run's clock.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store.records import (
    CHANGED_SOURCE,
    Count,
    Found,
    IntervalLength,
    RunStarted,
    Time,
    Value,
)
from profd.daemon.timerange import EVER, TimeRange


class RunInfo(RunStarted, frozen=True, kw_only=True):
    """A run as a whole: its start, and what has become of it.

    ``state`` is ``live`` (its recorder is running), ``ended``, or ``interrupted`` (the recorder
    died without closing the file). ``end_ns`` is the last time of which anything is known, so
    ``end_ns - started_ns`` is the run's length. ``why_ended`` is target-exited, stopped, duration
    or failed, and None while live or interrupted. ``analyzed_ns`` is the time of the last live
    analysis. ``analysis_lost_ns`` is the time since when there is no live analysis.
    ``findings_made_by`` names the analysis that wrote the findings of the whole run. These three
    are None if they do not apply.
    """

    state: str
    end_ns: Time
    why_ended: str | None
    exit_code: int | None
    exit_signal: int | None
    analyzed_ns: Time | None = None
    analysis_lost_ns: Time | None = None
    findings_made_by: str | None = None

    @property
    def is_live(self) -> bool:
        return self.state == "live"

    @property
    def time(self) -> TimeRange:
        """All of the run."""
        return TimeRange(self.started_ns, self.end_ns)


class ProcessRow(msgspec.Struct, frozen=True):
    """A process of the run's tree; ``role`` is main, worker, helper or launcher."""

    id: int
    pid: int
    start_ticks: int
    parent: int | None
    command: tuple[str, ...]
    role: str
    rank: int | None
    ordinal: int | None
    python: str | None
    seen_ns: Time
    ended_ns: Time | None
    exit_code: int | None
    exit_signal: int | None

    @property
    def is_main(self) -> bool:
        """Whether it trains: a rank, or the only process that does."""
        return self.role == "main"

    @property
    def by_rank(self) -> tuple[bool, int, int]:
        """The place in an order of processes: by rank, and those without one last."""
        return self.rank is None, self.rank or 0, self.id

    @property
    def life(self) -> TimeRange:
        """The time in which it was there, as far as it is known."""
        return TimeRange(self.seen_ns, EVER.to_ns if self.ended_ns is None else self.ended_ns)


class PlacementRow(msgspec.Struct, frozen=True):
    """The place of a rank in its job; fields are None if its launcher does not say."""

    process: int
    local_rank: int | None
    node: int | None
    world_size: int | None


class ThreadRow(msgspec.Struct, frozen=True):
    """A Python thread of a process."""

    id: int
    process: int
    os_tid: int
    name: str
    is_main: bool


class FrameRow(msgspec.Struct, frozen=True):
    """A function at a line.

    ``source`` is the text of the line, stripped, None if it could not be read. It is
    ``CHANGED_SOURCE`` if the file has changed since its process was started.
    """

    id: int
    function: str
    file: str
    module_path: str
    line: int
    is_library: bool
    source: str | None

    @property
    def text(self) -> str:
        """The text of the line for rules to match; empty if the running text is not known."""
        return "" if self.source in (None, CHANGED_SOURCE) else self.source or ""

    @property
    def label(self) -> str:
        """The frame as py-spy and flame graph tools write it: ``name (path:line)``."""
        return f"{self.function} ({self.module_path}:{self.line})" if self.line else self.function

    @property
    def place(self) -> tuple[str, str, str, int, str | None]:
        """Function, file, module path, line and source: fields of ``PhasePlace``."""
        return self.function, self.file, self.module_path, self.line, self.source


class StackRow(msgspec.Struct, frozen=True):
    """A node of the prefix tree of stacks: ``frame`` called from the stack ``parent``.

    ``parent`` is 0 if the node is a root.
    """

    id: int
    parent: int
    frame: int


class RecordingRow(msgspec.Struct, frozen=True):
    """A stretch of time in which a py-spy recording has read one process."""

    id: int
    process: int
    start_ns: Time
    end_ns: Time
    rate_hz: int
    samples: Count
    torn: Count
    errors: Count
    clock_error_ns: Time
    cpu_ns: Time


class GapRow(msgspec.Struct, frozen=True):
    """A time in which a process was not read, though it was due to be sampled without a gap.

    ``text`` says what is known of the cause.
    """

    id: int
    process: int
    start_ns: Time
    end_ns: Time
    reason: str
    text: str


class RecordedTotal(msgspec.Struct, frozen=True):
    """The stacks that recordings have read in all, and how many of them were torn."""

    samples: Count
    torn: Count

    @property
    def whole(self) -> int:
        """The number of stacks that are samples."""
        return max(self.samples - self.torn, 0)

    @property
    def torn_share(self) -> float | None:
        """The share that was dropped as impossible; None if nothing was read."""
        return self.torn / self.samples if self.samples else None


class ReadsTotal(msgspec.Struct, frozen=True):
    """How many reads of a process were due, and how many of them failed."""

    process: int
    failed: Count
    due: Annotated[float, msgspec.Meta(ge=0)]


class IntervalRow(msgspec.Struct, frozen=True):
    """A thread stood in one stack, seen there ``samples`` times."""

    start_ns: Time
    duration_ns: IntervalLength
    thread: int
    stack: int
    samples: Count

    @property
    def end_ns(self) -> int:
        """When the next stack began, or nothing more was seen."""
        return self.start_ns + self.duration_ns

    @property
    def time(self) -> TimeRange:
        return TimeRange(self.start_ns, self.end_ns)

    @property
    def moments_ns(self) -> list[int]:
        """When it was sampled: it begins with a sample, and its other samples follow evenly."""
        count = max(self.samples, 1)
        return [self.start_ns + number * self.duration_ns // count for number in range(count)]


class StackTotal(msgspec.Struct, frozen=True):
    """What was seen of a thread in one stack, over many intervals."""

    thread: int
    stack: int
    samples: Count
    duration_ns: Time


def count_total(totals: dict[tuple[int, int], StackTotal], one: StackTotal) -> None:
    """Add a total of a thread in a stack to those known."""
    key = one.thread, one.stack
    known = totals.get(key)
    if known is not None:
        one = StackTotal(*key, known.samples + one.samples, known.duration_ns + one.duration_ns)
    totals[key] = one


class ColumnTime(msgspec.Struct, frozen=True):
    """How long a thread stood in a stack in a column."""

    column: int
    thread: int
    stack: int
    time_ns: Time


class DeviceRow(msgspec.Struct, frozen=True, rename={"index": "number"}):
    """A GPU that the run used, or a MIG instance of one; ``name`` is the device of its series."""

    name: str
    index: int
    model: str
    uuid: str
    memory_bytes: int | None


class SeriesRow(msgspec.Struct, frozen=True):
    """A series of numbers; of the host if process, os_tid and device are None.

    The name includes the unit.
    """

    id: int
    name: str
    process: int | None
    os_tid: int | None
    device: str | None


class PointRow(msgspec.Struct, frozen=True):
    """One value of a series."""

    at_ns: Time
    value: Value

    def per_s_since(self, before: PointRow) -> float:
        """Return by how much a series of counts has grown a second since an earlier point."""
        return (self.value - before.value) * SECOND_NS / (self.at_ns - before.at_ns)


class EventRow(msgspec.Struct, frozen=True):
    """Something that happened, to a process or to the run."""

    id: int
    at_ns: Time
    kind: EventKind
    process: int | None
    text: str


class WindowRow(msgspec.Struct, frozen=True, rename={"kept_bytes": "length(trace)"}):
    """A torch.profiler window of one process.

    ``error`` says why there is none, and is empty if there is one. The device's times are of all
    devices together, None if nothing ran on any. ``trace_bytes`` is the trace's size.
    ``kept_bytes`` is the size of the gzipped trace in the file, None if it was too large to be
    kept.
    """

    id: int
    process: int
    source: str
    asked_ns: Time
    error: str
    start_ns: Time
    end_ns: Time
    device_busy_ns: Time | None
    device_idle_ns: Time | None
    device_overlap_ns: Time | None
    trace_bytes: Count
    kept_bytes: int | None

    @property
    def time(self) -> TimeRange:
        return TimeRange(self.start_ns, self.end_ns)


class FindingRow(Found, frozen=True):
    """A finding of the whole run, or of its last part while it was live.

    It held from ``from_ns`` to ``to_ns``, which is None if it
    still holds, or held to the end.
    """

    id: int
    is_whole: bool
    from_ns: Time
    to_ns: Time | None
