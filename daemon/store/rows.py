"""What the reader returns: frozen rows of the run file.

Times are nanoseconds of the run's clock.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from profd.daemon.store.records import (
    CHANGED_SOURCE,
    Count,
    HangReport,
    Identity,
    IntervalLength,
    Time,
    Value,
)


class RunInfo(msgspec.Struct, frozen=True):
    """A run as a whole.

    ``state`` is ``live`` (its recorder is running), ``ended``, or ``interrupted`` (the recorder
    died without closing the file). ``end_ns`` is the last time that anything is known of, so
    ``end_ns - started_ns`` is the run's length. ``why_ended`` is target-exited, stopped, duration,
    failed; None while live or interrupted. ``analyzed_ns`` is when findings were last looked for
    while it was live, ``analysis_lost_ns`` since when nothing looks for any; ``findings_made_by``
    names the analysis that wrote the findings of the whole run. All three: None where not.
    """

    id: str
    name: str
    mode: str
    pid: int
    start_ticks: int
    command: tuple[str, ...]
    cwd: str
    host: str
    user: str
    state: str
    started_ns: Time
    end_ns: Time
    why_ended: str | None
    exit_code: int | None
    exit_signal: int | None
    recorder: Identity
    control_socket: str
    versions: dict[str, str]
    options: dict[str, int | float | bool | str | None]
    analyzed_ns: Time | None = None
    analysis_lost_ns: Time | None = None
    findings_made_by: str | None = None


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


class PlacementRow(msgspec.Struct, frozen=True):
    """The place of a rank in its job; None where its launcher does not say."""

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

    ``source`` is the text of the line, stripped, None where it could not be read.

    ``CHANGED_SOURCE`` stands for that of a file that has changed since its process was started.
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
        """The text of the line for rules to go by; empty where what runs is not known."""
        return "" if self.source in (None, CHANGED_SOURCE) else self.source or ""

    @property
    def label(self) -> str:
        """The frame as py-spy and flame graph tools write it: ``name (path:line)``."""
        return f"{self.function} ({self.module_path}:{self.line})" if self.line else self.function

    @property
    def place(self) -> tuple[str, str, str, int, str | None]:
        """Function, file, module path, line and source: what ``PhasePlace`` has of it."""
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
    """A process that was to be sampled without a gap was not read.

    ``text`` is what is known of that.
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
        """How many are samples."""
        return max(self.samples - self.torn, 0)

    @property
    def torn_share(self) -> float | None:
        """The share that was dropped as impossible; None where nothing was read."""
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


class StackTotal(msgspec.Struct, frozen=True):
    """What was seen of a thread in one stack, over many intervals."""

    thread: int
    stack: int
    samples: Count
    duration_ns: Time


def count_total(totals: dict[tuple[int, int], StackTotal], one: StackTotal) -> None:
    """Add what was seen of a thread in a stack to what is known of it."""
    key = one.thread, one.stack
    known = totals.get(key)
    if known is not None:
        one = StackTotal(*key, known.samples + one.samples, known.duration_ns + one.duration_ns)
    totals[key] = one


class ColumnTime(msgspec.Struct, frozen=True):
    """For how long a thread stood in a stack in a column."""

    column: int
    thread: int
    stack: int
    time_ns: Time


class DeviceRow(msgspec.Struct, frozen=True):
    """A GPU that the run used, or a MIG instance of one; ``name`` is that of its series."""

    name: str
    index: int
    model: str
    uuid: str
    memory_bytes: int | None


class SeriesRow(msgspec.Struct, frozen=True):
    """A series of numbers; of the host where process, os_tid and device are None.

    The unit stands in the name.
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


class EventRow(msgspec.Struct, frozen=True):
    """A mark on the timeline; docs/file-format.md lists the kinds."""

    id: int
    at_ns: Time
    kind: str
    process: int | None
    text: str


class WindowRow(msgspec.Struct, frozen=True):
    """A torch.profiler window of one process.

    ``error`` says why there is none, and is empty where there is one.

    The device's times are of all devices together, None where nothing ran on any. ``trace_bytes``
    is the trace's size, ``kept_bytes`` that of the gzipped one in the file, None where it was too
    large to be kept.
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


class HangRow(msgspec.Struct, frozen=True):
    """A time without progress: from ``since_ns`` on, reported at ``at_ns``.

    ``ended_ns`` is None if it did not end.
    """

    id: int
    at_ns: Time
    since_ns: Time
    ended_ns: Time | None
    cause: str
    text: str
    report: HangReport


class FindingRow(msgspec.Struct, frozen=True):
    """A finding of the whole run, or of its last part while it was live.

    ``report`` is all of it, as JSON.

    It held from ``from_ns`` to ``to_ns``, which is None where it holds still, or held to the end.
    """

    id: int
    is_whole: bool
    rule: str
    severity: str
    title: str
    from_ns: Time
    to_ns: Time | None
    report: str


class OutputRow(msgspec.Struct, frozen=True):
    """Bytes that the script wrote to profd's pseudo-terminal."""

    id: int
    at_ns: Time
    data: bytes
