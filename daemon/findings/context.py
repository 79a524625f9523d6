"""What the rules look at, read once.

That is the training of a run over a range of time, its GPUs and its DataLoaders.

Startup and what follows the last step are left out, so that shares are those of the step.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
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
    OPTIMIZER,
    STARTUP,
    STEP,
    WITHOUT_WORK,
    PhaseIndex,
    training_range,
)
from profd.daemon.analyze.profile import Profile, take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.findings.finding import Evidence, Finding, Line, Measure
from profd.daemon.findings.kinds import Kinds, spoken
from profd.daemon.findings.shares import NONE, Share, share_of_series, shares_by
from profd.daemon.findings.texts import at, speeds_up, table
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, ProcessRow
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS, UTILIZATION
from profd.daemon.units import percent

Seen = TypeVar("Seen")

WORKED = 0.01
"""A GPU that was utilized for less of the time did not work for the training."""
_LEAST_SAMPLES = 100
ALL_WORK = 0.9

_CROWDED = 1.05
"""From this crowding on it raises a bound so much that the finding says so."""

_NEARLY_ALL = 0.9

MOST = 2 / 3
"""Of some time: what has as much is what a finding names."""

_OF_EVALUATION = frozenset({EVALUATION, DATA_WAIT, DATA_LOAD})
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
        self.from_ns, self.to_ns = found or whole.bounds(reader.info)
        self.selection = Selection(
            self.from_ns, self.to_ns, whole.processes, whole.rank, main_threads=True
        )

    def once(self, look: Callable[[FindingContext], Seen]) -> Seen:
        """Return what a rule finds, or a part of one sees; others that ask for it get the same."""
        if look not in self._found:
            self._found[look] = look(self)
        found: Seen = self._found[look]
        return found

    def severity(self, name: str, low: float) -> str | None:
        """Return how grave the finding ``name`` is at a loss of at least the share ``low``.

        Return None if it is no loss.

        Hardly any samples prove nothing. What a main thread loses beside GPUs costs no more than
        they idle.
        """
        low = min(low, 1 - (self.least_busy or 0.0)) if table().finding[name].beside_gpu else low
        return table().severity(name, low) if self.profile.total_samples >= _LEAST_SAMPLES else None

    def finding(
        self,
        name: str,
        first: Share | Measure | float,
        /,
        *others: Measure,
        severity: str | None = None,
        surely: float | None = None,
        gain: float | Callable[[], float | None] | None = None,
        line: Callable[[], Line | None] | None = None,
        cases: Mapping[str, bool] = {},
        selection: Selection | None = None,
        since_ns: int | None = None,
        series: tuple[str, ...] = (),
        **words: object,
    ) -> Finding | None:
        """Return the finding ``name`` of ``texts.toml``, where ``cases`` hold.

        None where too little is lost for it.

        ``first`` is the measure that decides it: a share of the time with its interval, a part of
        what there is, or any other. Without a ``severity`` the scale of the table decides, by what
        is ``surely`` lost: by default the low end of the share, or the part. ``gain`` and ``line``
        are looked for only then; the default is the line of the finding's phase. Its stacks are
        those of ``selection``, else of the main threads in its phase. ``series`` are those that
        were read where the table cannot know them.
        """
        texts = table().finding[name]
        if severity is None and isinstance(first, float):
            severity = table().severity(name, first)
        elif severity is None and isinstance(first, Share):
            severity = self.severity(name, first.low if surely is None else surely)
        if severity is None:
            return None
        found = line() if line else self.line(texts.phase) if texts.phase else None
        gain = gain() if callable(gain) else gain
        share = first if isinstance(first, float) else first.value
        speeds = speeds_up(gain, is_crowded=self.crowding > _CROWDED, trains=self.trains)
        said = texts.said(
            {"share": percent(share), "at": at(found), "speeds_up": speeds, **words}, cases
        )
        if not isinstance(first, Measure):
            first = (
                first.measure(said["measure"])
                if isinstance(first, Share)
                else Measure(said["measure"], first)
            )
        selection = selection or self.in_phase(texts.phase)
        from_ns, to_ns = (
            since_ns or selection.from_ns or self.from_ns,
            selection.to_ns or self.to_ns,
        )
        evidence = Evidence(
            (first, *others), from_ns, to_ns, selection, found, series or texts.series
        )
        rule, title, bound = (
            texts.rule or name,
            f"{texts.label}: {said['title']}",
            gain if texts.is_bound else None,
        )
        return Finding(
            rule,
            severity,
            texts.label,
            title,
            said["cause"],
            said["remedy"],
            bound,
            evidence,
            page=rule,
        )

    def in_phase(self, phase: str | None) -> Selection:
        return msgspec.structs.replace(self.selection, phase=phase)

    @cached_property
    def kinds(self) -> Kinds:
        return Kinds(self.reader)

    @cached_property
    def profile(self) -> Profile:
        return self.profile_on(self.selection)

    def profile_on(self, selection: Selection) -> Profile:
        return take_profile(self.reader, selection, self.phases)

    @cached_property
    def job(self) -> Job | None:
        """The ranks side by side.

        None where there are no two that exchange data, or too little was seen of one.
        """
        return take_job(self.reader, self.selection, self.phases)

    @cached_property
    def lacking(self) -> float:
        """The share of the time in which main threads have work and wait for a core.

        0 where unknown.

        A thread with work and no CPU time may wait for a core, a disk, or a lock; for a core it
        waits as long as the kernel says, or where that is not counted by thread, no longer than it
        says that any thread did.
        """
        cores = series.mean_of_known(self.main_thread_cores(row.id) for row in self.trainers)
        waited = series.mean_of_known(self.mean(series.CORE_WAIT, row.id) for row in self.trainers)
        waited = self.mean(series.PRESSURE) if waited is None else waited
        work = 1 - self.share(*WITHOUT_WORK).value
        return 0.0 if cores is None or waited is None else min(work - min(cores, work), waited)

    @cached_property
    def crowding(self) -> float:
        """By how many times the main threads' own work takes longer because they wait for a core.

        1 where unknown.
        """
        work = 1 - self.share(*WITHOUT_WORK).value
        return work / (work - self.lacking) if self.lacking < work else math.inf

    @cached_property
    def trainers(self) -> tuple[ProcessRow, ...]:
        return tuple(self.selection.trainers(self.reader))

    @cached_property
    def workers(self) -> tuple[ProcessRow, ...]:
        trainers = {row.id for row in self.trainers}
        rows = (
            row
            for row in self.reader.processes.values()
            if row.role == "worker" and row.parent in trainers
        )
        to_ns = self.to_ns
        return tuple(
            row for row in rows if row.seen_ns < to_ns and (row.ended_ns or to_ns) > self.from_ns
        )

    @property
    def workers_at_once(self) -> int:
        """How many workers there are at a time: those that replace others take their numbers."""
        return len({(row.parent, row.ordinal) for row in self.workers})

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The names of the GPUs that the training uses.

        They are those on which one of its processes was seen, else those that worked.

        Containers and some drivers hide processes from NVML.
        """
        reader, trainers = self.reader, {row.id for row in self.trainers}
        seen = {
            row.device
            for row in reader.list_series(
                MEMORY_OF_PROCESS, "gpu_process_sm_share", processes=trainers
            )
        }
        known = {row.device for row in reader.list_series(UTILIZATION)}
        found = seen or {
            device for device in known if (self.mean(UTILIZATION, None, device) or 0.0) >= WORKED
        }
        return tuple(sorted(device for device in found if device is not None))

    @cached_property
    def uses_gpu(self) -> bool | None:
        """Whether the training uses GPUs; None where there are some, and nobody knows."""
        if self.devices or not self.reader.devices():
            return bool(self.devices)
        known = (
            self.mean(UTILIZATION, None, row.name) is not None for row in self.reader.devices()
        )
        return False if all(known) else None

    @cached_property
    def utilization(self) -> float | None:
        """The mean utilization of the GPUs that the training uses, 0 to 1.

        None where none is known.
        """
        return self._utilization_of(*self.trainers)

    @cached_property
    def least_busy(self) -> float | None:
        """The utilization of the GPUs of the rank that keeps its own least busy.

        The other ranks wait for it on their GPUs.
        """
        return min(
            (busy for row in self.trainers if (busy := self._utilization_of(row)) is not None),
            default=None,
        )

    def _utilization_of(self, *processes: ProcessRow) -> float | None:
        if not self.devices:
            return None
        return total_utilization(
            self.reader, (row.id for row in processes), self.from_ns, self.to_ns
        ).mean

    @cached_property
    def trains(self) -> bool:
        """Whether the run was ever seen to update weights, or to compute gradients for it."""
        return any(phase in _OF_TRAINING for phase in self.phases.of_run())

    @cached_property
    def has_only_started(self) -> bool:
        """Whether hardly more than imports was seen: what the program is for may not have begun."""
        return not self.is_training and self.share(STARTUP).value > MOST

    @cached_property
    def by_torch(self) -> frozenset[int]:
        """The stacks with a function of torch in them: a step in NumPy has none."""
        frames_of = self.reader.frames_of
        stacks = self.profile.time_ns
        return frozenset(
            stack
            for stack in stacks
            if any(one.module_path.startswith("torch/") for one in frames_of(stack))
        )

    @cached_property
    def steps_by_torch(self) -> bool:
        """Whether a part of the steps is by torch.

        Advice on torch's threads or optimizers helps no other loop.
        """
        return any(self.phases.of_stack(stack) in STEP for stack in self.by_torch)

    def share(self, *phases: str) -> Share:
        if phases not in self._shares:
            self._shares[phases] = self.share_of(
                self.profile, lambda stack: self.phases.of_stack(stack) in phases
            )
        return self._shares[phases]

    @cached_property
    def _shares(self) -> dict[tuple[str, ...], Share]:
        return {
            (phase,): share
            for phase, share in shares_by(self.profile, self.phases.of_stack).items()
        }

    @cached_property
    def evaluating(self) -> frozenset[int]:
        """The stacks of evaluations, with the batches that they need."""
        of_stack, is_within = self.phases.of_stack, self.phases.is_within
        stacks = (stack for stack in self.profile.time_ns if of_stack(stack) in _OF_EVALUATION)
        return frozenset(stack for stack in stacks if is_within(stack, EVALUATION))

    def share_of(self, profile: Profile, holds: Callable[[int], bool]) -> Share:
        return shares_by(profile, holds).get(True, NONE)

    def is_all_work(self, share: Share) -> bool:
        """Say whether a share is all that a program without any phase of a step does.

        That is no loss, but the program's work.
        """
        return not self.is_training and share.high > ALL_WORK

    def line(self, *phases: str) -> Line | None:
        """Return the line of the user's code at which most time of some phases went by.

        Evaluations do not count.
        """

        def holds(stack: int) -> bool:
            return self.phases.of_stack(stack) in phases and stack not in self.evaluating

        return self.heaviest_line(self.profile, holds)

    def heaviest_line(
        self,
        profile: Profile,
        holds: Callable[[int], bool] = lambda _: True,
        frame_of: Callable[[int], FrameRow | None] | None = None,
    ) -> Line | None:
        """Return the line at which most time of some stacks of a profile went by.

        They are the stacks for which ``holds`` is true.

        It is the user's line that a stack owes its phase to, or that of ``frame_of``. None where no
        stack has one.
        """
        frame_of = frame_of or self.phases.user_line
        spent_ns: defaultdict[int, float] = defaultdict(float)
        for stack, time_ns in profile.time_ns.items():
            frame = frame_of(stack) if holds(stack) else None
            if frame is not None:
                spent_ns[frame.id] += time_ns
        return (
            line_of(self.reader.frames[max(spent_ns, key=spent_ns.__getitem__)])
            if spent_ns
            else None
        )

    def line_of_call(self, stacks: Collection[int]) -> Line | None:
        """Return the outermost of the user's lines below which nearly all is of these stacks.

        Mostly that is the line of the loop.

        It leaves out most of the rest, too: where these stacks are nearly all of a step, so they
        are below ``main()``.
        """
        every_ns, these_ns = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
        for stack, time_ns in self.profile.time_ns.items():
            path = tuple(one.id for one in self.reader.frames_of(stack) if not one.is_library)
            for depth in range(1, len(path) + 1):
                every_ns[path[:depth]] += int(time_ns)
                these_ns[path[:depth]] += int(time_ns) if stack in stacks else 0
        rest_ns = sum(ns for stack, ns in self.profile.time_ns.items() if stack not in stacks)
        line: tuple[int, ...] = ()
        while below := [path for path, ns in these_ns.items() if ns and path[:-1] == line]:
            line = max(below, key=these_ns.__getitem__)
            other_ns = every_ns[line] - these_ns[line]
            if other_ns <= min((1 - _NEARLY_ALL) * every_ns[line], rest_ns / 2):
                break
        return line_of(self.reader.frames[line[-1]]) if line else None

    def innermost(self, paths: Mapping[int, Sequence[int]]) -> tuple[str | None, set[int]]:
        """Return the innermost function with most of the time of stacks, and its stacks.

        None and all: none has it.

        ``paths`` are the ids of the user's frames in each, from the outermost one to look at on.
        """
        found: defaultdict[str, set[int]] = defaultdict(set)
        for stack, path in paths.items():
            for name in filter(
                None, (spoken(self.reader.frames[frame].function) for frame in path)
            ):
                found[name].add(stack)
        spent_ns = {
            name: sum(self.profile.time_ns[stack] for stack in stacks)
            for name, stacks in found.items()
        }
        least_ns = MOST * sum(self.profile.time_ns[stack] for stack in paths)
        most = [name for name in reversed(found) if spent_ns[name] >= least_ns]
        if not most:
            return None, set(paths)
        innermost = min(
            most, key=spent_ns.__getitem__
        )  # which has the least, and of equals comes last
        return innermost, found[innermost]

    def leaf(self, stack: int) -> FrameRow:
        return self.reader.frames[self.reader.stacks[stack].frame]

    def mean(
        self, name: str, process: int | None = None, device: str | None = None
    ) -> float | None:
        return series.mean_of_series(self.reader, name, process, self.selection, device)

    def worker_means(self, name: str) -> list[float | None]:
        return [self.mean(name, row.id) for row in self.workers]

    def main_thread_cores(self, process: int) -> float | None:
        """Return the CPU time a second of the main thread of a process.

        None where it was not read.
        """
        return series.main_thread_cores(self.reader, process, self.from_ns, self.to_ns)

    def mean_share(self, name: str, device: str | None = None) -> Share | None:
        """Return the mean of a series of shares with its interval.

        None where it has too few readings for one.
        """
        return share_of_series(self.values(name, device=device), self.mean(name, device=device))

    def values(
        self, name: str, process: int | None = None, device: str | None = None
    ) -> list[float]:
        return [
            point.value
            for point in series.points_of(self.reader, name, process, self.selection, device)
        ]


def line_of(frame: FrameRow) -> Line:
    return Line(frame.file, frame.module_path, frame.line, frame.source, frame.function, frame.id)
