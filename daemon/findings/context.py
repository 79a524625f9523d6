"""What the rules look at, read once: the training of a run over a range of time, GPUs, DataLoaders.

Startup and the time after the last step are left out, so that shares are those of the step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

import msgspec

from profd.daemon.analyze import series
from profd.daemon.analyze.gputracks import total_utilization
from profd.daemon.analyze.job import Job, take_job
from profd.daemon.analyze.phases import (
    BACKWARD,
    DATA_LOAD,
    DATA_WAIT,
    EVALUATION,
    INFERENCE,
    OPTIMIZER,
    STARTUP,
    STEP,
    WITHOUT_WORK,
    PhaseIndex,
    own_frame,
    training_range,
)
from profd.daemon.analyze.profile import Profile, take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.findings.finding import LEAST_SAMPLES, Evidence, Finding, Line, Measure
from profd.daemon.findings.kinds import Kind, Kinds, spoken
from profd.daemon.findings.shares import NONE, Share, share_of_series, shares_by
from profd.daemon.findings.texts import Texts, at, speeds_up, table
from profd.daemon.frameworks.frames import Meaning, all_meanings
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, ProcessRow
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS, UTILIZATION
from profd.daemon.units import percent, rounded_percent

Seen = TypeVar("Seen")

WORKED = 0.01
"""A GPU that was utilized for less of the time did not work for the training."""
NEARLY_ALL = 0.9
MOST = 2 / 3
"""A finding names what has at least this part of some time."""
# What takes time on the main thread often slows the rest as well: caches are emptied, pages copied,
# cores fall asleep. In trials, a fix removed half of a step or more, and the rest took 0.81 to 1.09
# of its time before.
INDIRECT = 0.25
_MOST_CROWDING = 1.5  # in trials, no fix gave the rest of a step more of the run's cores

_OF_TRAINING = frozenset({BACKWARD, OPTIMIZER})


class FindingContext:
    """A run, or a part of it, under examination.

    ``selection`` keeps the main threads of training processes in the time from their first step to
    their last; ``whole`` is what was asked for.
    """

    def __init__(
        self, reader: RunReader, whole: Selection = MAIN_THREADS, phases: PhaseIndex | None = None
    ) -> None:
        self.reader, self.whole = reader, whole
        self.phases = phases or PhaseIndex(reader)
        found = training_range(reader, whole, self.phases)
        self.is_training = found is not None
        self._found: dict[object, Any] = {}
        self._meanings: dict[int, frozenset[Meaning]] = {}
        self.time = found or whole.time_in(reader)
        self.selection = Selection(*self.time, whole.processes, whole.rank, main_threads=True)

    def once(self, look: Callable[[FindingContext], Seen]) -> Seen:
        """Return what a rule, or a part of one, finds; it looks once, whoever asks for it."""
        if look not in self._found:
            self._found[look] = look(self)
        found: Seen = self._found[look]
        return found

    def severity(self, name: str, low: float) -> str | None:
        """Return how grave the finding ``name`` is at a loss of at least the share ``low``.

        None if it is no loss. A few samples prove nothing. If a main thread loses time while GPUs
        work, that costs no more than their idle time.
        """
        low = min(low, 1 - (self.least_busy or 0.0)) if table().finding[name].beside_gpu else low
        return table().severity(name, low) if self.profile.total_samples >= LEAST_SAMPLES else None

    def finding(
        self,
        name: str,
        first: Share | Measure | float,
        /,
        *others: Measure,
        severity: str | None = None,
        surely: float | None = None,
        gain: float | Callable[[], float | None] | None = None,
        least_gain: float | None = None,
        line: Callable[[], Line | None] | None = None,
        call: Line | None = None,
        cases: Mapping[str, bool] = {},
        selection: Selection | None = None,
        since_ns: int | None = None,
        series: tuple[str, ...] = (),
        **words: object,
    ) -> Finding | None:
        """Return the finding ``name`` of ``texts.toml`` with the texts of the ``cases`` that hold.

        None if too little is lost for it.

        The measure ``first`` decides: a share of the time with its interval, a part of what there
        is, or any other. Without a ``severity`` the scale of the table decides, by what is
        ``surely`` lost: by default the low end of the share, or the part. Only then are ``gain``
        and ``line`` looked for; the defaults are the bound by the share, and the line of the
        finding's phase. A ``least_gain`` is said, too, if it is near the bound. ``call`` is the
        line of the user's loop that calls what has the cause. The stacks of the finding are those
        of ``selection``, by default of the main threads in its phase. ``series`` names the series
        that were read if the table cannot know them. A finding mentions crowded cores if they raise
        its bound by more than 5 %.
        """
        texts = table().finding[name]
        severity = severity or self._severity_by(name, first, surely)
        if severity is None:
            return None
        place = None
        if line is not None:
            place = line()
        elif texts.phase:
            place = self.line(texts.phase)
        if gain is None:
            gain = partial(self._gain, texts, first)
        gain = gain() if callable(gain) else gain
        speeds = speeds_up(gain, least_gain, is_crowded=self.crowding > 1.05, trains=self.trains)
        given = {"share": _said(first), "at": at(place, call), "speeds_up": speeds, **words}
        said = texts.said(given, cases)
        selection = selection or self.in_phase(texts.phase)
        evidence = Evidence(
            (_as_measure(first, said["measure"]), *others),
            since_ns or selection.from_ns or self.time.from_ns,
            selection.to_ns or self.time.to_ns,
            selection,
            place,
            series or texts.series,
            call,
        )
        rule = texts.rule or name
        return Finding(
            rule,
            severity,
            texts.label,
            f"{texts.label}: {said['title']}",
            said["cause"],
            said["remedy"],
            gain if texts.is_bound else None,
            evidence,
            page=rule,
        )

    def _severity_by(
        self, name: str, first: Share | Measure | float, surely: float | None
    ) -> str | None:
        if isinstance(first, float):
            return table().severity(name, first)
        if isinstance(first, Share):
            return self.severity(name, first.low if surely is None else surely)
        return None

    def _gain(self, texts: Texts, first: Share | Measure | float) -> float | None:
        if not isinstance(first, Share) or not texts.is_bound:
            return None
        limit = None if texts.is_indirect else first.gain
        return self.bound(first, limit, beside_gpu=texts.beside_gpu)

    def bound(
        self,
        share: Share,
        *limits: float | None,
        indirect: float = INDIRECT,
        beside_gpu: bool = True,
    ) -> float:
        """Return the bound on the gain of removing what takes a share of the time.

        Steps take at least as long as GPUs work for them, unless the removed work is the GPUs' and
        not ``beside_gpu``.

        The rest of a step may get shorter by the cores that it lacked, and by what the share had
        cost it: at most the part ``indirect`` of the share. ``limits`` hold even so.
        """
        rest = 1 - indirect * min(share.high, 1.0)
        slower = min(self.crowding, _MOST_CROWDING)
        busy = self.least_busy if beside_gpu else None
        work = [1 / busy] if busy else []
        return min([slower * share.gain / rest, *filter(None, limits), *work])

    def in_phase(self, phase: str | None) -> Selection:
        return msgspec.structs.replace(self.selection, phase=phase)

    @cached_property
    def kinds(self) -> Kinds:
        return Kinds(self.reader)

    def kind_of(self, stacks: Collection[int], profile: Profile | None = None) -> Kind | None:
        """Return the kind of calls that has most of the time of stacks; None if none has."""
        profile = profile or self.profile
        by_kind = profile.time_by(self.kinds.of_stack, stacks)
        kind = next(iter(by_kind), None)
        return kind if kind and by_kind[kind] >= MOST * profile.spent_ns(stacks) else None

    @cached_property
    def profile(self) -> Profile:
        return self.profile_on(self.selection)

    def profile_on(self, selection: Selection) -> Profile:
        return take_profile(self.reader, selection, self.phases)

    @cached_property
    def job(self) -> Job | None:
        """The ranks side by side; None without two that exchange data, or with too few samples."""
        return take_job(self.reader, self.selection, self.phases)

    @cached_property
    def main_cores(self) -> float | None:
        """The mean CPU time per second of the main threads; None if not read."""
        return series.mean_of_known(self.main_thread_cores(row.id) for row in self.trainers)

    @cached_property
    def lacking(self) -> float:
        """The share of the time in which main threads have work and wait for a core; 0 if unknown.

        A thread with work and no CPU time may wait for a core, a disk, or a lock. The kernel says
        how long it waits for a core. If the kernel does not count that by thread, the wait is no
        longer than that of any thread of the machine.
        """
        cores = self.main_cores
        waited = series.mean_of_known(self.mean(series.CORE_WAIT, row.id) for row in self.trainers)
        waited = self.mean(series.PRESSURE) if waited is None else waited
        work = 1 - self.share(*WITHOUT_WORK).value
        return 0.0 if cores is None or waited is None else min(work - min(cores, work), waited)

    @cached_property
    def crowding(self) -> float:
        """How many times longer main threads work because the run's others have their cores.

        No fix frees what other programs have. 1 if unknown.
        """
        running = 1 - self.share(*WITHOUT_WORK).value - self.lacking
        each = (self.sum_over_processes("cpu_cores") or math.inf) / max(len(self.trainers), 1)
        freed = min(self.lacking, max(each - (self.main_cores or 0.0), 0.0))
        return 1 + freed / running if running > 0 else math.inf

    @cached_property
    def trainers(self) -> tuple[ProcessRow, ...]:
        return tuple(self.selection.trainers(self.reader))

    @cached_property
    def workers(self) -> tuple[ProcessRow, ...]:
        """The workers of the training.

        Without those of a known loader they are what its processes have started by multiprocessing.
        """
        trainers = {row.id for row in self.trainers}
        children = [
            row
            for row in self.reader.processes.values()
            if row.parent in trainers and row.life.overlaps(self.time)
        ]
        named = [row for row in children if row.role == "worker"]
        return tuple(named or filter(self._is_multiprocess, children))

    def _is_multiprocess(self, row: ProcessRow) -> bool:
        chosen = Selection(*self.time, frozenset({row.id}), thread="MainThread")
        return any(self.means(stack, "child begins") for stack in self.profile_on(chosen).samples)

    @property
    def workers_at_once(self) -> int:
        """How many workers live at a time: a worker that replaces another takes its number."""
        return len({(row.parent, row.ordinal or -row.id) for row in self.workers})

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The names of the GPUs that the training uses.

        One of its processes was seen on them. If none was seen, they are the GPUs that worked:
        containers and some drivers hide processes from NVML.
        """
        trainers = {row.id for row in self.trainers}
        held = self.reader.list_series(MEMORY_OF_PROCESS, processes=trainers)
        known = {row.device for row in held} or {
            row.device
            for row in self.reader.list_series(UTILIZATION)
            if (self.mean(UTILIZATION, None, row.device) or 0.0) >= WORKED
        }
        return tuple(sorted(filter(None, known)))

    @cached_property
    def uses_gpu(self) -> bool | None:
        """Whether the training uses GPUs; None if there are some and it is unknown."""
        if self.devices or not self.reader.devices():
            return bool(self.devices)
        known = (
            self.mean(UTILIZATION, None, row.name) is not None for row in self.reader.devices()
        )
        return False if all(known) else None

    @cached_property
    def utilization(self) -> float | None:
        """The mean utilization of the GPUs that the training uses, 0 to 1; None if unknown."""
        return self._utilization_of(*self.trainers)

    @cached_property
    def least_busy(self) -> float | None:
        """The utilization of the least busy rank's GPUs: the other ranks wait on theirs for it."""
        return min(
            (busy for row in self.trainers if (busy := self._utilization_of(row)) is not None),
            default=None,
        )

    def _utilization_of(self, *processes: ProcessRow) -> float | None:
        if not self.devices:
            return None
        return total_utilization(self.reader, (row.id for row in processes), self.time).mean

    @cached_property
    def trains(self) -> bool:
        """Whether any sample of the run updates weights or computes gradients."""
        return any(phase in _OF_TRAINING for phase in self.phases.of_run())

    @cached_property
    def has_only_started(self) -> bool:
        """Whether hardly more than imports was seen: the program's work may not have begun."""
        return not self.is_training and self.share(STARTUP).value > MOST

    def means(self, stack: int, *meanings: Meaning) -> bool:
        """Say whether a frame of a stack has one of these meanings."""
        if stack not in self._meanings:
            self._meanings[stack] = all_meanings(self.reader.frames_of(stack))
        return not self._meanings[stack].isdisjoint(meanings)

    def stacks_of(self, meaning: Meaning) -> set[int]:
        """Return the stacks with a frame of this meaning."""
        return {stack for stack in self.profile.time_ns if self.means(stack, meaning)}

    def stacks_in(self, phase: str) -> set[int]:
        return {stack for stack in self.profile.time_ns if self.phases.of_stack(stack) == phase}

    @cached_property
    def steps_by_torch(self) -> bool:
        """Whether a part of the steps is by torch: a step in NumPy has no function of torch.

        Advice on torch's threads or optimizers helps no other loop.
        """
        return any(self.phases.of_stack(stack) in STEP for stack in self.stacks_of("torch"))

    def share(self, *phases: str) -> Share:
        if phases not in self._shares:
            self._shares[phases] = self.share_of(
                lambda stack: self.phases.of_stack(stack) in phases
            )
        return self._shares[phases]

    @cached_property
    def _shares(self) -> dict[tuple[str, ...], Share]:
        return {
            (phase,): share
            for phase, share in shares_by(self.profile, self.phases.of_stack).items()
        }

    def within(self, phase: str) -> set[int]:
        """Return the stacks in a phase that runs the model, with the batches that it needs."""
        stacks = self.stacks_in(phase) | self.stacks_in(DATA_WAIT) | self.stacks_in(DATA_LOAD)
        return {stack for stack in stacks if self.phases.is_within(stack, phase)}

    @cached_property
    def evaluating(self) -> set[int]:
        """The stacks that run the model beside the steps, with the batches that they need."""
        return self.within(EVALUATION) | self.within(INFERENCE)

    def share_of(self, holds: Callable[[int], bool], profile: Profile | None = None) -> Share:
        """Return the share of the stacks of a profile, by default the context's, that hold."""
        return shares_by(profile or self.profile, holds).get(True, NONE)

    def is_all_work(self, share: Share) -> bool:
        """Say whether a share is all that a program without any phase of a step does.

        That is no loss, but the work of the program.
        """
        return not self.is_training and share.high > NEARLY_ALL

    def line(self, *phases: str) -> Line | None:
        """Return the user's line with the most time of some phases, evaluations left out."""

        def holds(stack: int) -> bool:
            return self.phases.of_stack(stack) in phases and stack not in self.evaluating

        return self.heaviest_line(holds)

    def heaviest_line(
        self,
        holds: Callable[[int], bool] = lambda _: True,
        frame_of: Callable[[int], FrameRow | None] | None = None,
        profile: Profile | None = None,
    ) -> Line | None:
        """Return the line with the most time of the stacks of a profile that ``holds`` selects.

        It is the user's line that gives a stack its phase, or that of ``frame_of``. None if no
        stack has one.
        """
        frame_of = frame_of or self.phases.user_line

        def frame_id(stack: int) -> int | None:
            frame = frame_of(stack) if holds(stack) else None
            return frame.id if frame else None

        frames = iter((profile or self.profile).time_by(frame_id))
        return next((line_of(self.reader.frames[frame]) for frame in frames), None)

    def innermost(self, paths: Mapping[int, Sequence[int]]) -> tuple[str | None, set[int]]:
        """Return the innermost function with most of the time of stacks, and its stacks.

        Return None and all stacks if no function has most of the time. ``paths`` has the ids of the
        user's frames of each stack, from the outermost one to look at on.
        """
        found: defaultdict[str, set[int]] = defaultdict(set)
        for stack, path in paths.items():
            for frame in path:
                if name := spoken(self.reader.frames[frame].function):
                    found[name].add(stack)
        spent_ns = {name: self.profile.spent_ns(stacks) for name, stacks in found.items()}
        least_ns = MOST * self.profile.spent_ns(paths)
        most = [name for name in reversed(found) if spent_ns[name] >= least_ns]
        if not most:
            return None, set(paths)
        # It has the least time, and comes last among equals.
        innermost = min(most, key=spent_ns.__getitem__)
        return innermost, found[innermost]

    def own_frame(self, stack: int) -> FrameRow | None:
        """Return the user's innermost frame of a stack."""
        return own_frame(self.reader.frames_of(stack))

    def leaf(self, stack: int) -> FrameRow:
        return self.reader.frames[self.reader.stacks[stack].frame]

    def mean(
        self, name: str, process: int | None = None, device: str | None = None
    ) -> float | None:
        return series.total_of_series(self.reader, name, process, self.selection, device).mean

    def sum_over_processes(self, name: str, device: str | None = None) -> float:
        """Return the mean sum of a series over the processes that train and their workers."""
        mains = sum(self.mean(name, row.id, device) or 0.0 for row in self.trainers)
        of_workers = (self.mean(name, row.id, device) for row in self.workers)
        return mains + self.workers_at_once * (series.mean_of_known(of_workers) or 0.0)

    def mean_of_workers(self, name: str) -> float | None:
        return series.mean_of_known(self.mean(name, row.id) for row in self.workers)

    def main_thread_cores(self, process: int) -> float | None:
        """Return the CPU time per second of the main thread of a process; None if not read."""
        return series.main_thread_cores(self.reader, process, self.time)

    def mean_share(self, name: str, device: str | None = None) -> Share | None:
        """Return the mean of a series of shares with its interval; None with too few readings."""
        return share_of_series(self.values(name, device=device), self.mean(name, device=device))

    def values(
        self, name: str, process: int | None = None, device: str | None = None
    ) -> list[float]:
        return [
            point.value
            for point in series.points_of(self.reader, name, process, self.selection, device)
        ]


def _as_measure(first: Share | Measure | float, name: str) -> Measure:
    if isinstance(first, Share):
        return first.measure(name)
    return Measure(name, first) if isinstance(first, float) else first


def _said(first: Share | Measure | float) -> str:
    if isinstance(first, Share):
        return rounded_percent(first.value, (first.high - first.low) / 2)
    return percent(first if isinstance(first, float) else first.value)


def line_of(frame: FrameRow) -> Line:
    return Line(frame.file, frame.module_path, frame.line, frame.source, frame.function, frame.id)
