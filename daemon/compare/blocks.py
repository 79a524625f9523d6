"""A run in blocks of equal length, whose noise gives the error of a mean; contention by others.

The error of sampling is not all that separates two stretches of a run: machines are uneven. Means
of blocks hold both.

A process on the neighboring core takes cache, memory traffic and, where two logical cores share a
physical one, a part of its execution units; a process on the same core takes all of it for a while.
Both make a whole run slower or faster, which no noise within the run shows.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from profd.daemon.analyze import series
from profd.daemon.analyze.confidence import error_factor, likeness
from profd.daemon.analyze.coverage import COST_SERIES
from profd.daemon.analyze.phases import PhaseIndex, own_frames, training_range
from profd.daemon.analyze.profile import selected_totals
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import Steps, measure_steps, take_steps
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow
from profd.daemon.timerange import TimeRange

BLOCKS = 12
MOST_BLOCKS = 24
"""More blocks show their own noise better, but each must hold about a hundred samples."""
_BLOCK_NS = 2 * SECOND_NS

Item = tuple[str, str, str, int]
"""What is compared: its kind, name, module path and line (0 but for lines).

Each kind divides all time: by phase; by the innermost line or ``caller → function`` of the user's
code, with the libraries that it calls; by leaf, of any function.
"""


class Mean(msgspec.Struct, frozen=True):
    """A mean over blocks with its standard error."""

    value: float
    error: float

    def less(self, other: Mean) -> Mean:
        """Return by how much it is more than another."""
        return Mean(self.value - other.value, math.hypot(self.error, other.error))


class Blocks(msgspec.Struct, frozen=True):
    """The share of each item in the main threads' time, by block.

    ``step_s`` are the seconds a step in all blocks, None if unknown. ``paces`` are the seconds a
    step of each block, empty if steps were counted too seldom for that. ``functions`` has the
    function of each line, as its module path and name.
    """

    count: int
    shares: Mapping[Item, Sequence[float]]
    step_s: Mean | None
    paces: Sequence[float]
    time: TimeRange
    functions: Mapping[Item, tuple[str, str]]

    def mean(self, item: Item, *, by_step: bool) -> Mean:
        shares = self.shares.get(item, [0.0] * self.count)
        if not by_step or self.step_s is None:
            return mean_of(shares)
        if self.paces:
            scale = self.step_s.value / statistics.fmean(self.paces)
            return mean_of(
                [scale * share * pace_s for share, pace_s in zip(shares, self.paces, strict=True)]
            )
        share, step_s = mean_of(shares), self.step_s
        return Mean(
            share.value * step_s.value,
            math.hypot(share.error * step_s.value, share.value * step_s.error),
        )


def take_blocks(reader: RunReader, selection: Selection) -> Blocks:
    phases = PhaseIndex(reader)
    inside = selection.time_in(reader)
    time = training_range(reader, selection, phases) or inside
    count = min(max(time.length_ns // _BLOCK_NS, BLOCKS), MOST_BLOCKS)
    parts = [selection.during(block) for block in time.cut(count)]
    rates = [measure_steps(reader, part, phases).per_s for part in parts]
    paces = [1 / rate for rate in rates if rate] if all(rates) else []
    steps = take_steps(reader, selection.during(time), phases)
    functions = {
        _line_item(frame): (frame.module_path, frame.function) for frame in reader.frames.values()
    }
    return Blocks(
        count,
        _shares(reader, parts, phases),
        _step_s(steps, paces),
        paces,
        time,
        functions,
    )


def _shares(
    reader: RunReader, parts: Sequence[Selection], phases: PhaseIndex
) -> dict[Item, list[float]]:
    """Return by item its share of the time in each part."""
    shares: defaultdict[Item, list[float]] = defaultdict(lambda: [0.0] * len(parts))
    for number, part in enumerate(parts):
        spent_ns: Counter[Item] = Counter()
        totals = selected_totals(reader, part, phases)
        whole_ns = sum(total.duration_ns for total in totals)
        for total in totals:
            for item in _items(reader, total.stack, phases):
                spent_ns[item] += total.duration_ns
        for item, time_ns in spent_ns.items():
            shares[item][number] = time_ns / whole_ns if whole_ns else 0.0
    return shares


def _step_s(steps: Steps, paces: Sequence[float]) -> Mean | None:
    """Return the seconds a step of a run by its rate, and how uneven they are by its blocks."""
    if not steps.per_s:
        return mean_of(paces) if paces else None
    if paces:
        return Mean(1 / steps.per_s, mean_of(paces).error)
    # The error of a rate is the most that it can be off by: about two standard errors.
    return Mean(1 / steps.per_s, (steps.per_s_error or 0.0) / steps.per_s**2 / 2)


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean of block values with its standard error.

    The error is widened if neighbors are alike.
    """
    mean = statistics.fmean(values)
    spread = statistics.stdev(values, mean)
    if not spread:
        return Mean(mean, 0.0)
    alike = min(max(likeness([value - mean for value in values]), 0.0), 0.8)
    return Mean(mean, spread / math.sqrt(len(values)) * error_factor(alike))


def _items(reader: RunReader, stack: int, phases: PhaseIndex) -> Iterator[Item]:
    frames = reader.frames_of(stack)
    yield "phase", phases.of_stack(stack), "", 0
    yield "leaf", frames[-1].function, frames[-1].module_path, 0
    own = own_frames(frames)
    if own:
        line = own[-1]
        callers = [
            frame.function for frame in own if frame.function not in (line.function, "<module>")
        ]
        name = f"{callers[-1]} → {line.function}" if callers else line.function
        yield "function", name, line.module_path, 0
        yield _line_item(line)


def _line_item(frame: FrameRow) -> Item:
    return "line", frame.text or frame.function, frame.module_path, frame.line


# Steps of a loop in Python take 1.4 to 1.7 times as long while the other logical core of a physical
# one is busy.
_OF_MORE_CONTENTION = 0.5
# As much contention in both runs is not the same contention: beside a process that kept a third of
# a core busy in either, steps differed by up to 6.4 %.
_OF_ANY_CONTENTION = 0.25


class CpuContention(msgspec.Struct, frozen=True):
    """What others took of the machine while a run was recorded.

    ``others`` is the share of the cores, one of them left out, that processes other than the run
    and profd kept busy; time that a hypervisor gave to other machines counts. ``lacking`` is the
    share of the time in which main threads waited for a core, or may have.
    """

    others: float
    lacking: float


def take_cpu_contention(reader: RunReader, part: Selection) -> CpuContention | None:
    busy = series.total_of_series(reader, "host_cpu_share", None, part).mean
    cores = series.machine_cores(reader)
    if busy is None or not cores:
        return None
    profd_cores = series.total_of_series(reader, COST_SERIES, None, part).mean or 0.0
    others = busy * cores - profd_cores - _cores_of_run(reader, part)
    return CpuContention(min(max(others, 0.0) / max(cores - 1, 1), 1.0), _lacking(reader, part))


def _cores_of_run(reader: RunReader, part: Selection) -> float:
    """Return how many cores all processes of a run kept busy, on average over a part of it."""
    cores = 0.0
    for row in reader.list_series("cpu_cores"):
        if row.process is not None and row.os_tid is None:
            # The process may have lived for less than the whole part.
            lived = reader.processes[row.process].life.within(part.time)
            mean = series.total_of(reader, row.id, lived).mean or 0.0
            cores += mean * lived.length_ns / max(part.time.length_ns, 1)
    return cores


def _lacking(reader: RunReader, part: Selection) -> float:
    """Return for what share of the time main threads waited for a core, at most.

    If the kernel does not count that for them, it is no longer than any task of the machine waited,
    and no longer than they were off the CPU.
    """
    mains = [row.id for row in Selection().trainers(reader)]
    waited = series.mean_of_known(
        series.total_of_series(reader, series.CORE_WAIT, process, part).mean for process in mains
    )
    if waited is not None:
        return waited
    pressure = series.total_of_series(reader, series.PRESSURE, None, part).mean or 0.0
    used = (series.main_thread_cores(reader, process, part.time) for process in mains)
    off = series.mean_of_known(None if cores is None else 1 - min(cores, 1.0) for cores in used)
    return pressure if off is None else min(off, pressure)


def slowing(base: CpuContention | None, new: CpuContention | None) -> float:
    """Return the part of a step that contention may have added in one of two runs; 0 if unknown."""
    if base is None or new is None:
        return 0.0
    beside = _OF_MORE_CONTENTION * abs(new.others - base.others) + _OF_ANY_CONTENTION * max(
        base.others, new.others
    )
    longer = sorted(1 / (1 - min(side.lacking, 0.99)) for side in (base, new))
    return beside + longer[1] / longer[0] - 1 + _OF_ANY_CONTENTION * (longer[1] - 1)
