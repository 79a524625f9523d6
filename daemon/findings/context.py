"""What the rules look at: the training of a run over a range of time, its GPUs and DataLoaders, read once.

Startup and what follows the last step are left out, so that shares are those of the step. Judges nothing.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cached_property

import msgspec

from profd.daemon.analyze.confidence import margin
from profd.daemon.analyze.coverage import mean_of_series
from profd.daemon.analyze.gputracks import MEMORY_OF_PROCESS, mean_utilization
from profd.daemon.analyze.job import Job, take_job
from profd.daemon.analyze.phases import STARTUP, WAITING, PhaseIndex
from profd.daemon.analyze.profile import Profile, take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.series import take_course
from profd.daemon.analyze.steps import training_range
from profd.daemon.analyze.uncertainty import ShareVariance
from profd.daemon.findings.finding import Evidence, Line, Measure
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, ProcessRow

MAIN_THREAD = "MainThread"
_MOST = 0.99
_FEWEST_READINGS = 4


class Share(msgspec.Struct, frozen=True):
    """A share of time with its 95 % interval, and the samples that it rests on."""

    value: float
    low: float
    high: float
    samples: int

    @property
    def gain(self) -> float:
        """By how many times all goes faster, at most, without what has this share."""
        return 1 / (1 - min(self.high, _MOST))

    def measure(self, name: str) -> Measure:
        """Return it as evidence."""
        return Measure(name, self.value, "share", self.low, self.high, self.samples)


NONE = Share(0.0, 0.0, 0.0, 0)


def share_around(value: float, error: float, samples: int) -> Share:
    """Return a share with the interval of a standard error."""
    around = margin(error)
    return Share(value, max(value - around, 0.0), min(value + around, 1.0), samples)


class FindingContext:
    """A run, or a part of it, under examination.

    ``selection`` keeps the main threads of training processes in the time from their first step to their last;
    ``whole`` is what was asked for.
    """

    def __init__(self, reader: RunReader, whole: Selection = MAIN_THREADS, phases: PhaseIndex | None = None) -> None:
        self.reader = reader
        self.whole = whole
        self.phases = phases or PhaseIndex(reader)
        found = training_range(reader, whole, self.phases)
        self.is_training = found is not None
        self.from_ns, self.to_ns = found or _bounds(reader, whole)
        self.selection = msgspec.structs.replace(
            MAIN_THREADS, from_ns=self.from_ns, to_ns=self.to_ns, processes=whole.processes, rank=whole.rank
        )

    @cached_property
    def profile(self) -> Profile:
        """What the main threads did."""
        return take_profile(self.reader, self.selection, self.phases)

    @cached_property
    def job(self) -> Job | None:
        """The ranks side by side; None where there are no two that exchange data, or too little was seen of one."""
        return take_job(self.reader, self.selection, self.phases)

    @cached_property
    def workers(self) -> tuple[ProcessRow, ...]:
        """The workers of the training processes that lived meanwhile."""
        return tuple(
            row
            for row in self.reader.processes.values()
            if row.role == "worker" and row.seen_ns < self.to_ns and (row.ended_ns or self.to_ns) > self.from_ns
            if self._is_of_training(row.parent)
        )

    @property
    def trainers(self) -> tuple[ProcessRow, ...]:
        """The training processes."""
        return tuple(
            row for row in self.reader.processes.values() if row.role == "main" and self.selection.takes_process(row)
        )

    def share(self, *phases: str) -> Share:
        """Return the share that some phases have of the main threads' time."""
        if len(phases) == 1:
            return self._shares.get(phases[0], NONE)
        return self.share_of(self.profile, lambda stack: self.phases.of_stack(stack) in phases)

    @cached_property
    def _shares(self) -> dict[str, Share]:
        """The share of each phase: asked for by nearly all rules, and gone through once."""
        profile = self.profile
        phase_of = {stack: self.phases.of_stack(stack) for stack in profile.time_ns}
        doubt: ShareVariance[str] = ShareVariance(
            lambda stack: frozenset({phase_of[stack]} if stack in phase_of else ())
        )
        doubt.add(profile.changes)
        spent_ns: defaultdict[str, float] = defaultdict(float)
        samples: Counter[str] = Counter()
        for stack, phase in phase_of.items():
            spent_ns[phase] += profile.time_ns[stack]
            samples[phase] += profile.samples[stack]
        whole_ns = profile.total_ns
        if not whole_ns:
            return {}
        return {
            phase: share_around(
                time_ns / whole_ns, doubt.standard_error(phase, time_ns / whole_ns, whole_ns), samples[phase]
            )
            for phase, time_ns in spent_ns.items()
        }

    def share_of(self, profile: Profile, holds: Callable[[int], bool]) -> Share:
        """Return the share of those stacks of a profile for which something holds."""
        inside = {stack for stack in profile.time_ns if holds(stack)}
        whole_ns = profile.total_ns
        if not whole_ns:
            return NONE
        states = {stack: frozenset({stack in inside}) for stack in profile.time_ns}
        doubt: ShareVariance[bool] = ShareVariance(lambda stack: states.get(stack, frozenset()))
        doubt.add(profile.changes)
        share = sum(profile.time_ns[stack] for stack in inside) / whole_ns
        samples = sum(profile.samples[stack] for stack in inside)
        return share_around(share, doubt.standard_error(True, share, whole_ns) if inside else 0.0, samples)

    def profile_on(self, selection: Selection) -> Profile:
        """Return what another selection did."""
        return take_profile(self.reader, selection, self.phases)

    def profile_of(self, processes: Collection[ProcessRow]) -> tuple[Selection, Profile]:
        """Return what the main threads of other processes did meanwhile, with what selects them."""
        selection = Selection(
            from_ns=self.from_ns,
            to_ns=self.to_ns,
            processes=frozenset(row.id for row in processes),
            thread=MAIN_THREAD,
        )
        return selection, self.profile_on(selection)

    def line(self, *phases: str) -> Line | None:
        """Return the line of the user's code at which most time of some phases went by."""
        return self.heaviest_line(self.profile, lambda stack: self.phases.of_stack(stack) in phases)

    def heaviest_line(
        self,
        profile: Profile,
        holds: Callable[[int], bool] = lambda _: True,
        frame_of: Callable[[int], FrameRow | None] | None = None,
    ) -> Line | None:
        """Return the line at which most time went by of those stacks of a profile for which something holds.

        It is the user's line that a stack owes its phase to, or that of ``frame_of``. None where no stack has one.
        """
        frame_of = frame_of or self.phases.user_line
        spent_ns: defaultdict[int, float] = defaultdict(float)
        for stack, time_ns in profile.time_ns.items():
            frame = frame_of(stack) if holds(stack) else None
            if frame is not None:
                spent_ns[frame.id] += time_ns
        return line_of(self.reader.frames[max(spent_ns, key=spent_ns.__getitem__)]) if spent_ns else None

    def evidence(
        self, *measures: Measure, phase: str | None = None, line: Line | None = None, series: tuple[str, ...] = ()
    ) -> Evidence:
        """Return evidence whose stacks are those of the main threads, in one phase where that is given."""
        selection = msgspec.structs.replace(self.selection, phase=phase)
        return Evidence(measures, self.from_ns, self.to_ns, selection, line, series)

    def mean(self, name: str, process: int | None = None, device: str | None = None) -> float | None:
        """Return the mean of a series of a process, a device or the host; None where nothing was read."""
        return mean_of_series(self.reader, name, process, self.selection, device)

    def most(self, name: str, process: int | None = None, device: str | None = None) -> float | None:
        """Return the highest value of a series; None where nothing was read. Of a long time quicker than ``values``."""
        series = self.reader.find_series(name, process, device)
        if series is None:
            return None
        total = take_course(self.reader, series.id, self.from_ns, self.to_ns).total()
        return total.most if total.is_known else None

    def values(self, name: str, process: int | None = None, device: str | None = None) -> list[float]:
        """Return the values of a series, in order of time."""
        series = self.reader.find_series(name, process, device)
        return [point.value for point in self.reader.points(series.id, self.from_ns, self.to_ns)] if series else []

    def _is_of_training(self, process: int | None) -> bool:
        row = self.reader.processes.get(process or 0)
        return row is not None and row.role == "main" and self.selection.takes_process(row)


def share_of_series(values: Sequence[float], mean: float | None = None) -> Share | None:
    """Return the mean of a share with the interval that its readings give it; None where there are too few for one.

    ``mean`` is that of the series by its step function; without it that of the readings, as of several series together.
    """
    if len(values) < _FEWEST_READINGS:
        return None
    value = statistics.fmean(values) if mean is None else mean
    return share_around(value, statistics.stdev(values) / math.sqrt(len(values)), len(values))


def line_of(frame: FrameRow) -> Line:
    """Return the line that a frame stands at."""
    return Line(frame.file, frame.module_path, frame.line, frame.source, frame.function, frame.id)


def _bounds(reader: RunReader, whole: Selection) -> tuple[int, int]:
    from_ns = reader.info.started_ns if whole.from_ns is None else whole.from_ns
    to_ns = reader.info.end_ns if whole.to_ns is None else whole.to_ns
    return from_ns, max(from_ns, to_ns)


def uses_gpu(case: FindingContext) -> bool:
    """Say whether a training process was seen to hold memory of a GPU."""
    return bool(used_devices(case))


def used_devices(case: FindingContext) -> tuple[str, ...]:
    """Return the names of the GPUs on which a training process was seen to hold memory."""
    trainers = {row.id for row in case.trainers}
    rows = [row for row in case.reader.series.values() if row.name == MEMORY_OF_PROCESS and row.process in trainers]
    return tuple(sorted({row.device for row in rows if row.device is not None}))


def utilization(case: FindingContext) -> float | None:
    """Return the mean utilization of the GPUs that the training uses, 0 to 1; None where none is known."""
    if not uses_gpu(case):
        return None
    means = [mean_utilization(case.reader, row.id, case.from_ns, case.to_ns) for row in case.trainers]
    known = [mean for mean in means if mean is not None]
    return sum(known) / len(known) if known else None


SATURATED = 0.8
"""A worker that is busy for more than this has no reserve: its next order is there before it has met the last one."""

_NOT_LOADING = frozenset({WAITING, STARTUP})
_LOOP = "_worker_loop"


class Loaders(msgspec.Struct, frozen=True):
    """Workers together: ``at_once`` of them lived at the same time, ``started`` were started in all.

    ``busy`` is the share of their time with an order, ``cores`` the CPU time a second of one of them, None where it was
    not read. ``line`` is the line of the dataset that they mostly stood at; ``selection`` selects what they did.
    """

    at_once: int
    started: int
    busy: Share
    samples: int
    cores: float | None
    line: Line | None
    selection: Selection


def living_at_once(case: FindingContext) -> int:
    """Return how many workers there are at a time: those that replace others take their numbers."""
    return len({(row.parent, row.ordinal) for row in case.workers})


def take_loaders(case: FindingContext) -> Loaders | None:
    """Return the workers of the training; None where there are none, or nothing was seen of them."""
    if not case.workers:
        return None
    selection, profile = case.profile_of(case.workers)
    if not profile.samples:
        return None
    cores = [used for row in case.workers if (used := case.mean("cpu_cores", row.id)) is not None]
    return Loaders(
        at_once=living_at_once(case),
        started=len(case.workers),
        busy=case.share_of(profile, lambda stack: case.phases.of_stack(stack) not in _NOT_LOADING),
        samples=profile.total_samples,
        cores=sum(cores) / len(cores) if cores else None,
        line=case.heaviest_line(profile, frame_of=lambda stack: _own_frame(case, stack)),
        selection=selection,
    )


def _own_frame(case: FindingContext, stack: int) -> FrameRow | None:
    """Return the innermost frame of the user's below the loop of a worker; None where there is none.

    What lies above the loop is the parent's, copied with the rest when the worker was forked.
    """
    found = None
    while stack:
        row = case.reader.stacks[stack]
        frame = case.reader.frames[row.frame]
        if frame.function == _LOOP:
            return found
        if found is None and not frame.is_library:
            found = frame
        stack = row.parent
    return None
