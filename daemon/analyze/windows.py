"""What a torch.profiler window says beside its operators: what GPUs waited for, and its own cost.

The samples of the launching threads that fell into gaps divide the host's part of a GPU's idle
time. Gaps are shorter than the distance of samples, so few are seen, but no line gets more than its
share of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeVar

import msgspec

from profd.daemon.analyze.gputracks import total_utilization
from profd.daemon.analyze.phases import own_frame
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import counts_of
from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import HostGap, OperatorTotals, WindowGpu, WindowStream, WindowWait
from profd.daemon.store.rows import FrameRow, WindowRow
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS
from profd.daemon.timerange import TimeRange
from profd.daemon.units import percent, plural

Timed = TypeVar("Timed", HostGap, WindowWait)
HOST = "cpu"  # the device of operators that run on the host; a kernel has that of its GPU
BEFORE_NS = SECOND_NS  # the interval of a thread as the window begins may have begun so long before
_LEAST_STEPS, _PARTS = 10, 12
_SLOWER = 0.05


class Line(msgspec.Struct, frozen=True):
    """A line of a file; ``module_path`` is the file's short name."""

    file: str
    module_path: str
    line: int

    @property
    def label(self) -> str:
        return f"{self.module_path}:{self.line}"


class WaitingLine(Line, frozen=True):
    """A line of the user's code that ran while a GPU waited for the host, in so many samples.

    ``function`` is the one around it, ``idle_ns`` its part of the time by the samples.
    """

    function: str
    samples: int
    idle_ns: int


class IdleGpu(msgspec.Struct, frozen=True):
    """The time of a GPU in a window from its first work to its last.

    It was idle for ``idle_ns``, and for ``host_ns`` of that it had nothing to run, because the host
    had not launched it. ``lines`` ran then, the one that took most first, by ``samples``. They sum
    to less if some samples have none of the user's code.
    """

    gpu: int
    busy_ns: int
    idle_ns: int
    host_ns: int
    samples: int
    lines: tuple[WaitingLine, ...]

    def share(self, part_ns: int) -> float:
        """Return a part of its time as a share."""
        return part_ns / (self.busy_ns + self.idle_ns or 1)


def python_threads(
    reader: RunReader, process: int
) -> tuple[dict[int, tuple[int, ...]], tuple[int, ...]]:
    """Return the rows of a process's threads by their id, one for each name, and the main one's.

    Threads without Python, such as those of autograd for devices, do what the main thread waits
    for.
    """
    rows = [row for row in reader.threads.values() if row.process == process]
    named: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)
    for row in rows:
        named[row.os_tid] += (row.id,)
    main = next((row.os_tid for row in rows if row.is_main), 0)
    return named, named.get(main, ())


def idle_gpus(reader: RunReader, window: WindowRow) -> tuple[IdleGpu, ...]:
    """Return the GPUs of a window by number; a file older than their table has none."""
    seen: defaultdict[int, Counter[FrameRow | None]] = defaultdict(Counter)
    for gap, stack in seen_in(reader, window, reader.host_gaps(window.id)):
        seen[gap.gpu][own_frame(reader.frames_of(stack))] += 1
    return tuple(_idle(row, seen[row.gpu]) for row in reader.window_gpus(window.id))


def seen_in(
    reader: RunReader, window: WindowRow, times: Iterable[Timed]
) -> Iterator[tuple[Timed, int]]:
    """Yield a window's times with the stack of each sample of the same thread within them."""
    named, main = python_threads(reader, window.process)
    of_threads: defaultdict[tuple[int, ...], list[Timed]] = defaultdict(list)
    for time in times:
        of_threads[named.get(time.os_tid, main)].append(time)
    begun = TimeRange(window.start_ns - BEFORE_NS, window.end_ns)
    for threads, those in of_threads.items():
        intervals = reader.intervals(begun, threads) if threads else ()
        samples = sorted((at_ns, row.stack) for row in intervals for at_ns in row.moments_ns)
        for time in those:
            first, after = (
                bisect_left(samples, (at_ns, 0)) for at_ns in (time.start_ns, time.end_ns)
            )
            yield from ((time, stack) for _, stack in samples[first:after])


def _idle(row: WindowGpu, seen: Counter[FrameRow | None]) -> IdleGpu:
    samples = seen.total()
    lines = (
        WaitingLine(
            frame.file,
            frame.module_path,
            frame.line,
            function=frame.function,
            samples=count,
            idle_ns=row.host_ns * count // samples,
        )
        for frame, count in seen.most_common()
        if frame is not None
    )
    return IdleGpu(row.gpu, row.busy_ns, row.idle_ns, row.host_ns, samples, tuple(lines))


class StepTimes(msgspec.Struct, frozen=True):
    """The seconds a step in the minute before a window, within it, and in the minute after it.

    None means unknown. ``is_slower`` says that steps are slower after it than before by more than
    chance and 5 % explain.
    """

    before_s: float | None
    within_s: float | None
    after_s: float | None
    is_slower: bool


def step_times(reader: RunReader, window: WindowRow) -> StepTimes:
    """Return what a window cost its process, by the count of steps and the steps in its trace."""
    said_ns = [
        event.at_ns for event in reader.events(EventKind.WINDOW) if event.process == window.process
    ]
    others = [row for row in reader.windows() if row.process == window.process and not row.error]
    since_ns = max((at_ns for at_ns in said_ns if at_ns < window.asked_ns), default=0)
    # The process writes its trace after the window, and trains on only then.
    written_ns = min((at_ns for at_ns in said_ns if at_ns >= window.end_ns), default=window.end_ns)
    until_ns = min(
        (row.asked_ns for row in others if row.asked_ns > written_ns),
        default=written_ns + MINUTE_NS,
    )
    earlier = TimeRange(max(since_ns, window.asked_ns - MINUTE_NS), window.asked_ns)
    later = TimeRange(written_ns, min(until_ns, written_ns + MINUTE_NS))
    before, after = (_pace(reader, window.process, time) for time in (earlier, later))
    steps = reader.window_steps(window.id)
    within_s = (steps[-1].end_ns - steps[0].start_ns) / len(steps) / SECOND_NS if steps else None
    slack = before[1] + after[1] + _SLOWER
    is_slower = bool(before[0] and after[0] and after[0] > before[0] * (1 + slack))
    return StepTimes(before[0], within_s, after[0], is_slower)


def _pace(reader: RunReader, process: int, time: TimeRange) -> tuple[float | None, float]:
    """Return the seconds a step by the count of steps, None with too few, and their error."""
    # It is the median of parts of the time, so that a pause such as an evaluation changes nothing.
    counts = counts_of(reader, process, Selection(*time)).longest
    made = counts[-1].value - counts[0].value if counts else 0.0
    parts = min(int(made) // _LEAST_STEPS, len(counts) - 1, _PARTS)
    if parts < 1:
        return None, 0.0
    ends = [counts[place * (len(counts) - 1) // parts] for place in range(parts + 1)]
    moved = [(last.at_ns - first.at_ns, last.value - first.value) for first, last in pairwise(ends)]
    pace = median(
        took_ns / SECOND_NS / steps if steps > 0 else math.inf for took_ns, steps in moved
    )
    # The count of each part may be off by one.
    return (pace if math.isfinite(pace) else None), math.sqrt(parts) / made


_GRAPHS = ("cudaGraphLaunch", "hipGraphLaunch")


class AboutWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What a window says beside its operators; ``notes`` are sentences that a reader must know."""

    gpus: tuple[IdleGpu, ...]
    step_times: StepTimes
    notes: tuple[str, ...]


def about_window(reader: RunReader, window: WindowRow) -> AboutWindow:
    """Return what a window says beside its operators."""
    times, gpus = step_times(reader, window), idle_gpus(reader, window)
    operators = reader.operators(window.id)
    host = [row for row in operators if row.device == HOST]
    works = [row for row in operators if row.device != HOST and not row.is_annotation]
    device_ns = sum(row.self_cuda_ns for row in works)
    uses_gpu = bool(reader.list_series(MEMORY_OF_PROCESS, processes={window.process}))
    busy = total_utilization(reader, [window.process], window.time).mean
    notes = (
        _about_graphs(host, device_ns),
        _about_lost_work(reader.window_streams(window.id), device_ns, uses_gpu=uses_gpu),
        _about_longer_steps(times, gpus),
        _about_slower_steps(times, device_ns),
        _about_another_process(gpus, sum(row.calls for row in works), busy),
    )
    return AboutWindow(gpus=gpus, step_times=times, notes=tuple(filter(None, notes)))


def _about_graphs(host: Sequence[OperatorTotals], device_ns: int) -> str | None:
    graphs = sum(row.calls for row in host if row.name.startswith(_GRAPHS))
    if not graphs:
        return None
    unlinked = 0.0
    if device_ns:
        unlinked = max(1 - sum(row.self_cuda_ns for row in host) / device_ns, 0.0)
    return (
        f"{plural(graphs, 'CUDA graph')} ran: kernels of a graph count for no operator that was "
        f"captured, so {percent(unlinked)} of the GPU's work has no operator here."
    )


# CUPTI of CUDA 12.6 and of CUDA 13.1, as its documentation numbers them.
_LOSES_FIRST = range(24, 130100)


def _about_lost_work(
    streams: Sequence[WindowStream], device_ns: int, *, uses_gpu: bool
) -> str | None:
    """Say what a trace lacks of the work that was launched, and why if that is known."""
    launches, lost, misdated, first = (
        sum(getattr(one, name) for one in streams)
        for name in ("launches", "lost", "misdated", "first")
    )
    if not device_ns and (launches or uses_gpu):
        does = f"made {launches:,} launches" if launches else "uses one"
        return (
            f"The trace has no work of a GPU, though the process {does}: another profiler, such as "
            "Nsight Systems, may hold CUPTI. End it and take the window again."
        )
    if not lost + misdated:
        return None
    lacks = {
        f"lacks the work of {lost:,} of {launches:,} launches": lost,
        f"has {plural(misdated, 'piece')} of work with the times of another clock": misdated,
    }
    what = " and ".join(filter(lacks.get, lacks))
    said = f"The trace {what}: the GPU's times are at least these, and its idle times at most."
    if lost and lost == first and streams[0].cupti in _LOSES_FIRST:
        said += (
            " What is missing are the first ones. CUPTI loses the first kernels of a window, from "
            "CUDA 12.6 Update 2 to before 13.1, and one more in each further window of a process "
            "(pytorch 192021): take fewer windows of a process, or update CUDA."
        )
    return said


def _about_longer_steps(steps: StepTimes, gpus: Sequence[IdleGpu]) -> str | None:
    if not (gpus and steps.before_s and steps.within_s):
        return None
    longer = steps.within_s / steps.before_s
    if steps.within_s <= steps.before_s * 1.1:
        return None
    # The profiler slows the host. What GPUs do in a step stays the same.
    idle = (
        f"GPU {gpu.gpu} about {percent(max(1 - gpu.share(gpu.busy_ns) * longer, 0.0))}"
        for gpu in gpus
    )
    return (
        f"The profiler made steps {percent(longer - 1)} longer. Without it GPUs are idle for less "
        f"of the time: {', '.join(idle)}."
    )


def _about_slower_steps(steps: StepTimes, device_ns: int) -> str | None:
    if not (steps.is_slower and steps.before_s and steps.after_s):
        return None
    slower = percent(steps.after_s / steps.before_s - 1)
    if not device_ns:
        return f"Steps take {slower} longer since the window."
    return (
        f"Steps take {slower} longer since the window: torch leaves CUPTI attached; "
        "TEARDOWN_CUPTI=1 in the script's environment has it detached, where no CUDA graphs are "
        "used."
    )


def _about_another_process(gpus: Sequence[IdleGpu], works: int, busy: float | None) -> str | None:
    """Say that another process used a GPU if it did.

    It did if the driver saw more work than the trace has, and the trace's work waited.
    """
    if len(gpus) != 1 or busy is None:
        return None
    gpu, ours = gpus[0], gpus[0].share(gpus[0].busy_ns)
    # Work starts within some microseconds if its process has the GPU to itself.
    if gpu.idle_ns - gpu.host_ns < 20_000 * works or busy - ours < 0.2:
        return None
    return (
        f"Another process used GPU {gpu.gpu}: the driver saw it busy {percent(busy)} of the "
        f"time, and the trace has work for {percent(ours)}. What this process had launched waited "
        "for that."
    )
