"""What collectors hand to the writer: frozen, self-contained records.

A process is named by its ``Identity`` and a stack by its frames; the writer turns both into
integers. All times are nanoseconds of the run's clock. A record's tag is its table, and its fields
are the columns of the same names; ``Tables`` has methods for the records that are more than a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec

from profd.daemon.events import EventKind

Time = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""Nanoseconds: a time of the run's clock, or a length.

More than 140 years is an error, and would overload code that loops over the time.
"""
IntervalLength = Annotated[int, msgspec.Meta(ge=0, le=1 << 45)]
"""Nanoseconds that a thread stood in one stack: up to 10 hours, though a recording lasts a minute.

Sums of it fit into 64 bits.
"""
Value = Annotated[
    float, msgspec.Meta(ge=-1e300, le=1e300)
]  # a finite number: no measured value is infinite
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
COLLECTING = "garbage_collection_share"
LOCK_WAIT, LOCK_HELD = "main_thread_lock_wait_share", "lock_held_share"
"""For what share of the time the leading thread waits for the interpreter's lock.

And for what share another thread holds that lock.
"""
HAND_OVERS = "lock_hand_overs_per_s"
"""How often a second the lock goes to another thread and back."""
STEP_COUNT, STEP_ERROR = "step_count", "step_count_error"
"""The series of a process's steps, and of how many of them may be wrong."""


class Identity(NamedTuple):
    """A process for all time: PIDs are reused, a PID with its start time is not.

    ``start_ticks`` is field 22 of ``/proc/PID/stat``: clock ticks from boot to the start of the
    process.
    """

    pid: int
    start_ticks: int


class Frame(NamedTuple):
    """A function at a line.

    ``file`` is the full path; ``line`` is 0 if py-spy does not know it.
    """

    function: str
    file: str
    line: int


Stack = tuple[Frame, ...]
"""Frames from the root to the leaf."""


class FrameDescription(msgspec.Struct, frozen=True):
    """What is stored of a frame beside its identity.

    See the tables ``frame`` and ``frame_without_gradients``.
    """

    module_path: str
    is_library: bool
    source: str | None
    is_without_gradients: bool = False


CHANGED_SOURCE = "(changed since it was started)"
"""Stands for a line's text if its file has changed since the process began its program."""
DescribeFrame = Callable[[Frame], FrameDescription]


class Placement(msgspec.Struct, frozen=True):
    """The place of a process in a job.

    It is its rank of ``world_size``, and its ``local_rank`` on the node of this number. ``job`` is
    the name that its launcher gives to all ranks of the job. Fields are None if the launcher does
    not say.
    """

    rank: int
    local_rank: int | None = None
    node: int | None = None
    world_size: int | None = None
    job: str | None = None


class ProcessSeen(msgspec.Struct, frozen=True, tag="process"):
    """A process of the tree that is new, or about which more is known.

    ``role`` is one of main, worker, helper, launcher. ``python`` is its version, None if it is no
    Python. ``placement`` is set only for a process that is the rank itself, not for its workers.
    """

    identity: Identity
    parent: Identity | None
    command: tuple[str, ...]
    role: str
    rank: int | None
    ordinal: int | None
    python: str | None
    at_ns: int
    placement: Placement | None = None


class ProcessEnded(msgspec.Struct, frozen=True, tag="process-ended"):
    """A process of the tree is gone; code and signal are None if they are unknown."""

    identity: Identity
    at_ns: int
    exit_code: int | None = None
    exit_signal: int | None = None


class Interval(msgspec.Struct, frozen=True):
    """A thread stood in one stack, seen there ``samples`` times.

    ``stack`` is an index into ``RecordingTaken.stacks``.
    """

    start_ns: int
    duration_ns: int
    stack: int
    samples: int


class ThreadId(NamedTuple):
    """A thread by the kernel's id and by the interpreter's."""

    os_tid: int
    ident: int


class ThreadTimeline(msgspec.Struct, frozen=True):
    """What one thread did during a recording: intervals in order of time, without overlap.

    ``ident`` is the interpreter's id of the thread; 0 if it is not known.
    """

    os_tid: int
    name: str
    is_main: bool
    intervals: tuple[Interval, ...]
    ident: int = 0


class RecordingTaken(msgspec.Struct, frozen=True, tag="recording"):
    """One py-spy recording of one process, checked and trimmed against its neighbors.

    ``stacks`` are frames from the root to the leaf. ``samples`` counts every stack that was read,
    including the ``torn`` ones that were dropped.
    """

    identity: Identity
    start_ns: int
    end_ns: int
    rate_hz: int
    samples: int
    torn: int
    errors: int
    clock_error_ns: int
    cpu_ns: int
    stacks: tuple[Stack, ...]
    threads: tuple[ThreadTimeline, ...]


class Point(msgspec.Struct, frozen=True):
    """One value of one series; of the host if process and device are None.

    ``at_ns`` is when it was read, None if that is the time of the record.
    """

    name: str
    value: float
    identity: Identity | None = None
    os_tid: int | None = None
    device: str | None = None
    at_ns: int | None = None


class PointsTaken(msgspec.Struct, frozen=True, tag="points"):
    """Values of many series, at one time unless they have their own.

    The values of one series are in order of time.
    """

    at_ns: int
    points: tuple[Point, ...]


class DeviceSeen(msgspec.Struct, frozen=True, tag="device", rename={"index": "number"}):
    """A GPU that is read from now on, or a MIG instance of one.

    ``name`` is the one used in ``Point.device``. ``index`` is NVML's number of the GPU.
    ``memory_bytes`` is None if it is unknown.
    """

    at_ns: int
    name: str
    index: int
    model: str
    uuid: str
    memory_bytes: int | None = None


class EventHappened(msgspec.Struct, frozen=True, tag="event"):
    """Something worth a mark on the timeline."""

    at_ns: int
    kind: EventKind
    text: str
    identity: Identity | None = None


class GapFound(msgspec.Struct, frozen=True, tag="gap"):
    """A process was not read in [start_ns, end_ns).

    See table ``gap`` for the reasons; ``text`` gives details.
    """

    identity: Identity
    start_ns: int
    end_ns: int
    reason: str
    text: str


class WindowStep(msgspec.Struct, frozen=True, order=True):
    """A whole step of the training within a window."""

    start_ns: Time
    end_ns: Time


class HostGap(msgspec.Struct, frozen=True, order=True):
    """A time in which a GPU waited for the call that launched its next work.

    The call was in thread ``os_tid``, if that is known.
    """

    gpu: int
    start_ns: Time
    end_ns: Time
    os_tid: Count


COLLECTIVE = "collective"


class WindowWait(msgspec.Struct, frozen=True, order=True):
    """A call in which a thread waited for GPUs or their memory.

    With ``COLLECTIVE``, a time in which a GPU ran nothing but a collective.
    """

    name: str
    start_ns: Time
    end_ns: Time
    os_tid: Count


class WindowGpu(msgspec.Struct, frozen=True):
    """The time of a GPU in a window, from its first work to its last.

    It is split into the time busy, idle, and with two things at once. During ``host_ns`` of the
    idle time, the next work was not launched yet.
    """

    gpu: int
    busy_ns: Time
    idle_ns: Time
    overlap_ns: Time
    host_ns: Time


class WindowStream(msgspec.Struct, frozen=True):
    """The launches of kernels and the work of a stream of a GPU in a window.

    Of the launches ``lost`` ones have no work, ``first`` of them before any that has. Their stream
    is not known: theirs is a row with the numbers 0. ``unlaunched`` kernels have no launch in the
    trace. ``misdated`` work has the times of another clock, and is left out of all sums. ``cupti``
    is the version of CUPTI's interface, 0 if it is not known.
    """

    gpu: Count
    stream: Count
    cupti: Count
    launches: Count
    lost: Count
    first: Count
    unlaunched: Count
    misdated: Count


class OperatorTotals(msgspec.Struct, frozen=True):
    """All calls of an operator with inputs of one shape, or of a kernel, in a window.

    See table ``operator``.
    """

    name: str
    device: str
    is_annotation: bool
    input_shapes: str
    calls: Count
    self_cpu_ns: Time
    cpu_total_ns: Time
    self_cuda_ns: Time
    cuda_total_ns: Time
    self_cpu_bytes: int
    cpu_bytes: int
    self_cuda_bytes: int
    cuda_bytes: int


class WindowTaken(msgspec.Struct, frozen=True, tag="window"):
    """A torch.profiler window of one process; if there is none, ``error`` says why.

    ``gaps`` are the longest ones that the host caused, by GPU and in order of time. ``asked_ns`` is
    when the window was requested, the same for all processes of one request. ``trace`` is gzipped,
    None if it was not kept; ``trace_bytes`` is its size unpacked.
    """

    identity: Identity
    at_ns: int
    source: str
    asked_ns: int
    error: str = ""
    start_ns: int = 0
    end_ns: int = 0
    steps: tuple[WindowStep, ...] = ()
    gpus: tuple[WindowGpu, ...] = ()
    gaps: tuple[HostGap, ...] = ()
    operators: tuple[OperatorTotals, ...] = ()
    trace_bytes: int = 0
    trace: bytes | None = None
    waits: tuple[WindowWait, ...] = ()
    streams: tuple[WindowStream, ...] = ()


class Stand(msgspec.Struct, frozen=True, rename={"process": "who"}):
    """A thread that stands still in a hang.

    ``process`` names its process in words, and ``wait`` says what it waits for. ``kind`` is the
    kind of the wait, empty in older files. ``os_tid`` is the thread's id for its process.
    ``awaits`` are the PIDs of the processes that it waits for, or the ids of threads of its own.
    """

    process: str
    pid: int
    role: str
    rank: int | None
    thread: str
    is_main: bool
    wait: str
    kind: str = ""
    os_tid: int | None = None
    awaits: tuple[int, ...] = ()


class HangGroup(msgspec.Struct, frozen=True):
    """All threads of a hang that stand in one stack; ``frames`` are from the root to the leaf.

    ``native`` are the native frames that the leaf called, ``function (file)`` from the innermost
    on, as far as they were read.
    """

    frames: tuple[Frame, ...]
    stands: tuple[Stand, ...]
    native: tuple[str, ...] = ()


class RankBehind(msgspec.Struct, frozen=True):
    """A rank that the others of its job wait for in a hang, and the operation that they wait in.

    ``rank`` is None for a worker that died. ``place`` is its position in the user's code. ``state``
    says what it waits for or how it ended. Both are empty if the rank is not part of this run.
    ``host`` is empty for this host; ``pid`` is None if it is unknown.
    """

    rank: int | None
    pid: int | None
    operation: str
    place: str = ""
    state: str = ""
    host: str = ""


class HangReport(msgspec.Struct, frozen=True):
    """A hang, as it was when it was reported.

    ``cause`` is its group of causes, see docs/hangs.md. ``groups`` has main threads first, then
    orders by size. ``facts`` are lines on what else is known: processes that ended shortly before,
    the last step, the GPUs. ``behind`` are the ranks that the others wait for, empty if unknown.
    """

    cause: str
    groups: tuple[HangGroup, ...]
    facts: tuple[str, ...] = ()
    behind: tuple[RankBehind, ...] = ()


class HangFound(msgspec.Struct, frozen=True, tag="hang"):
    """The run has made no progress since ``since_ns``; ``text`` says why in a sentence.

    ``ended_ns`` is when it went on, None if it did not. ``id`` is the row's in the file.
    """

    at_ns: Time
    since_ns: Time
    text: str
    report: HangReport
    ended_ns: Time | None = None
    id: int = 0


class HangEnded(msgspec.Struct, frozen=True, tag="hang-ended"):
    """The run goes on after the hang that was found at ``hang_ns``."""

    at_ns: int
    hang_ns: int


class Found(msgspec.Struct, frozen=True):
    """A finding: its ``rule``, ``severity`` and ``title``, and all of it in ``report``.

    ``title`` is a sentence, and ``report`` is JSON.
    """

    rule: str
    severity: str
    title: str
    report: str


class FindingsTaken(msgspec.Struct, frozen=True, tag="findings"):
    """What slows the last part of a live run at ``at_ns``.

    With ``made_by``, what slowed all of a run that has ended. ``made_by`` names the analysis,
    because another version of it, or other rules of phases, may find something else. ``answers``
    are what else it says of a long run, by question.
    """

    at_ns: int
    findings: tuple[Found, ...]
    made_by: str | None = None
    answers: dict[str, bytes] = {}


class AnalysisLost(msgspec.Struct, frozen=True, tag="analysis-lost"):
    """From now on nothing looks for findings, until the next ``FindingsTaken``."""

    at_ns: int


class OutputWritten(msgspec.Struct, frozen=True, tag="output"):
    """Bytes that the script wrote to its pseudo-terminal; ``id`` is the row's in the file."""

    at_ns: Time
    data: bytes
    id: int = 0


class RunEnded(msgspec.Struct, frozen=True, tag="run-ended"):
    """The last record of a run; ``why`` is one of target-exited, stopped, duration, failed."""

    at_ns: int
    why: str
    exit_code: int | None = None
    exit_signal: int | None = None


_OfProcesses = (
    ProcessSeen
    | ProcessEnded
    | RecordingTaken
    | PointsTaken
    | DeviceSeen
    | EventHappened
    | OutputWritten
)
Record = (
    _OfProcesses
    | GapFound
    | WindowTaken
    | HangFound
    | HangEnded
    | FindingsTaken
    | AnalysisLost
    | RunEnded
)
Put = Callable[[Record], object]
"""Takes a record; what it returns does not matter."""


def begin_of(record: Record) -> int:
    """Return the time from which a record reaches."""
    return record.start_ns if isinstance(record, RecordingTaken | GapFound) else record.at_ns


def time_of(record: Record) -> int:
    """Return the time up to which a record reaches."""
    return record.end_ns if isinstance(record, RecordingTaken | GapFound) else record.at_ns


class RunStarted(msgspec.Struct, frozen=True):
    """What is known of a run when its file is created.

    ``options`` are those that change the meaning of the numbers.
    """

    id: str
    name: str
    mode: str  # launched or attached
    target: Identity
    command: tuple[str, ...]
    cwd: str
    host: str
    user: str
    started_ns: Time
    recorder: Identity  # the process that writes the file: while it lives, the run is live
    versions: dict[str, str]
    options: dict[str, int | float | bool | str | None]
    control_socket: str = ""
