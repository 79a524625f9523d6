"""The time of each stack in a selection, its intervals in order, hot functions and lines.

A share is one of time. Samples are its evidence, and do not measure it: a stretch that was sampled
faster has more of them, and a process that is sampled in turns with others has fewer.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TypeVar

import msgspec

from profd.daemon.analyze.conditions import covers_of
from profd.daemon.analyze.coverage import Lives, take_lives
from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.phases import PhaseIndex, PhasePlace, own_frame
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.analyze.uncertainty import (
    ShareVariance,
    State,
    TransitionsSeen,
    take_transitions,
    together,
)
from profd.daemon.frameworks.frames import any_means
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Rest, StackMinuteRow
from profd.daemon.store.rows import FrameRow, IntervalRow, StackTotal, count_total
from profd.daemon.store.stepfunction import samples_inside
from profd.daemon.timerange import EVER, TimeRange


def selected_intervals(
    reader: RunReader,
    selection: Selection,
    threads: frozenset[int],
    phases: PhaseIndex | None = None,
) -> Iterator[IntervalRow]:
    """Yield the intervals of some threads within a selection, ordered by their start.

    An interval in which its conditions held now and then comes in parts, the first with the samples
    of all. ``phases`` is needed only if the selection names a phase, and by default made.
    """
    index = None if selection.phase is None else phases or PhaseIndex(reader)
    ends_in = selection.time.longer(RECORDING.longest_ns)
    covers = covers_of(reader, selection.when, threads, ends_in)
    for interval in reader.intervals(selection.time, threads):
        if index is not None and index.of_stack(interval.stack) != selection.phase:
            continue
        if not covers:
            yield interval
            continue
        parts = list(covers[interval.thread].ranges_between(interval.start_ns, interval.end_ns))
        samples = samples_inside(
            interval.samples, interval.duration_ns, sum(end - start for start, end in parts)
        )
        for number, (start_ns, end_ns) in enumerate(parts):
            seen = 0 if number else samples
            yield IntervalRow(start_ns, end_ns - start_ns, interval.thread, interval.stack, seen)


def selected_totals(
    reader: RunReader, selection: Selection, phases: PhaseIndex | None = None
) -> list[StackTotal]:
    """Return what was seen of a selection by thread and stack; ``phases`` is by default made."""
    threads = selection.threads(reader)
    if not threads:
        return []
    if selection.when:
        totals = _totals_while(reader, msgspec.structs.replace(selection, phase=None), threads)
    else:
        totals = reader.totals(selection.time, threads)
    if selection.phase is None:
        return totals
    index = phases or PhaseIndex(reader)
    return [total for total in totals if index.of_stack(total.stack) == selection.phase]


def parts_while(
    parts: Iterable[Iterable[Condition]],
) -> Callable[[StackMinuteRow], tuple[int, ...]]:
    """Return the function that gives a sum's samples and time for each part, in one row.

    A part is a set of conditions that hold together; a sum is over some of them.
    """
    return attrgetter(
        *(name for part in parts for name in _PARTS[frozenset(one.name for one in part)])
    )


_PARTS: Mapping[frozenset[str], tuple[str, str]] = {
    frozenset(): ("samples", "duration_ns"),
    frozenset({"gpu-idle"}): ("nearly_idle_samples", "nearly_idle_ns"),
    frozenset({"on-cpu"}): ("cpu_samples", "cpu_ns"),
    frozenset({"gpu-idle", "on-cpu"}): ("both_samples", "both_ns"),
}


def _totals_while(
    reader: RunReader, selection: Selection, threads: frozenset[int]
) -> list[StackTotal]:
    totals: dict[tuple[int, int], StackTotal] = {}
    rests = [Rest(threads, selection.time)]
    if all(one.name == "on-cpu" or one == Condition("gpu-idle") for one in selection.when):
        part = parts_while([selection.when])
        sums, rests = reader.rollups.sums(selection.time, threads)
        for minute in sums:
            seen, spent_ns = part(minute)
            if seen or spent_ns:
                count_total(totals, StackTotal(minute.thread, minute.stack, seen, spent_ns))
    for rest in rests:
        for row in selected_intervals(reader, selection.during(rest.time), rest.threads):
            count_total(totals, StackTotal(row.thread, row.stack, row.samples, row.duration_ns))
    return list(totals.values())


Key = TypeVar("Key")


class Profile(msgspec.Struct, frozen=True):
    """By stack id: the samples, and the time that they stand for in the selected threads.

    ``changes`` are those of the threads from stack to stack, selected or not: they show how exact
    the times are.
    """

    samples: dict[int, int] = {}
    time_ns: dict[int, float] = {}
    changes: TransitionsSeen = TransitionsSeen()

    @property
    def total_samples(self) -> int:
        return sum(self.samples.values())

    @property
    def total_ns(self) -> float:
        """The sum of the times: thread time, so that two threads have two seconds each second."""
        return sum(self.time_ns.values())

    def seen_in(self, stacks: Iterable[int]) -> int:
        return sum(map(self.samples.__getitem__, stacks))

    def spent_ns(self, stacks: Iterable[int]) -> float:
        return sum(map(self.time_ns.__getitem__, stacks))

    def time_by(
        self, key_of: Callable[[int], Key | None], stacks: Iterable[int] | None = None
    ) -> dict[Key, float]:
        """Return the time of stacks by their key, the most first; a stack without one is left out.

        ``stacks`` are by default all.
        """
        spent_ns: defaultdict[Key, float] = defaultdict(float)
        for stack in self.time_ns if stacks is None else stacks:
            if (key := key_of(stack)) is not None:
                spent_ns[key] += self.time_ns[stack]
        return dict(sorted(spent_ns.items(), key=itemgetter(1), reverse=True))

    def errors(
        self, shares: Mapping[State, float], states_of: Callable[[int], frozenset[State]]
    ) -> dict[State, float]:
        """Return the standard errors of the shares of states, of which a stack may have several."""
        # Stacks that are not selected are no state: a thread that goes there leaves all states.
        variance = ShareVariance(
            self.changes, lambda stack: states_of(stack) if stack in self.time_ns else frozenset()
        )
        whole_ns = self.total_ns
        return {
            state: variance.standard_error(state, share, whole_ns)
            for state, share in shares.items()
        }


def take_profile(
    reader: RunReader,
    selection: Selection,
    phases: PhaseIndex | None = None,
    changes: Mapping[int, TransitionsSeen] | None = None,
) -> Profile:
    """Add up the time of a selection by stack.

    ``phases`` is needed only if the selection names a phase, and by default made. ``changes`` are
    what ``take_transitions`` gives for the selection, if that is known already.
    """
    totals = selected_totals(reader, selection, phases)
    if not totals:
        return Profile()
    weights = process_weights(reader, take_lives(reader), selection.time)
    return weighted(
        reader, totals, take_transitions(reader, selection) if changes is None else changes, weights
    )


def process_weights(reader: RunReader, lives: Lives, time: TimeRange = EVER) -> dict[int, float]:
    """Return by process the time that a second of its recordings stands for."""
    return {process: lives.weight(process, time) for process in reader.processes}


def weighted(
    reader: RunReader,
    totals: Iterable[StackTotal],
    changes: Mapping[int, TransitionsSeen],
    weights: Mapping[int, float],
) -> Profile:
    """Return the profile of sums by thread and stack; changes and weights are by process."""
    samples: Counter[int] = Counter()
    time_ns: defaultdict[int, float] = defaultdict(float)
    for total in totals:
        spent_ns = total.duration_ns * weights[reader.threads[total.thread].process]
        samples[total.stack] += total.samples
        time_ns[total.stack] += spent_ns
    return Profile(dict(samples), dict(time_ns), together(changes, weights))


class Busy(msgspec.Struct, frozen=True):
    """The mean ``utilization`` of a process's GPUs during the ``known_ns`` of a stack."""

    utilization: float
    known_ns: float


def mean_utilization(known: Sequence[Busy]) -> float | None:
    """Return the mean over all the time that is known; None if there is none."""
    known_ns = sum(one.known_ns for one in known)
    busy_ns = sum(one.utilization * one.known_ns for one in known)
    return busy_ns / known_ns if known_ns else None


def utilization_by_stack(
    reader: RunReader, tracks: GpuTracks, selection: Selection, phases: PhaseIndex | None = None
) -> dict[int, Busy]:
    """Return how busy the GPUs were during each stack of a selection, if that is known."""
    threads = selection.threads(reader)
    if not threads or not tracks.series:
        return {}
    known_ns: defaultdict[int, float] = defaultdict(float)
    busy_ns: defaultdict[int, float] = defaultdict(float)
    index = None if selection.phase is None else phases or PhaseIndex(reader)
    rests = [Rest(threads, selection.time)]
    if not selection.when:
        sums, rests = reader.rollups.sums(selection.time, threads)
        for row in sums:
            if index is None or index.of_stack(row.stack) == selection.phase:
                known_ns[row.stack] += row.known_ns
                busy_ns[row.stack] += row.busy_ns
    for rest in rests:
        near = GpuTracks(reader, rest.time)
        part = selection.during(rest.time)
        for one in selected_intervals(reader, part, rest.threads, index):
            mean, length_ns = near.of_process(reader.threads[one.thread].process).mean(
                one.start_ns, one.end_ns
            )
            known_ns[one.stack] += length_ns
            busy_ns[one.stack] += mean * length_ns
    return {
        stack: Busy(busy_ns[stack] / length_ns, length_ns)
        for stack, length_ns in known_ns.items()
        if length_ns
    }


FunctionKey = tuple[str, str, int, str]
"""A function and its file; for a line of it also that and its phase, otherwise 0 and nothing."""
_LIBRARY: FunctionKey = "", "", 0, ""
StackFunctions = tuple[FunctionKey, tuple[tuple[FunctionKey, int], ...]]
"""The item at the leaf of a stack, and each item in it once, with its innermost frame."""


class FunctionRow(msgspec.Struct, frozen=True):
    """A function, or a line of it in a ``phase``, with its shares of the time of a profile, 0 to 1.

    ``self`` is the time with the function at the leaf, ``total`` with it anywhere in the stack
    (once, even if it recurs). ``line`` is its line with the most time, ``source`` the text of that.
    Samples are the evidence; errors are standard errors of the shares. ``gpu_utilization`` is the
    mean over the time with the function anywhere in the stack, None if no GPU was read then.
    """

    function: str
    file: str
    module_path: str
    is_library: bool
    line: int
    source: str | None
    self_samples: int
    total_samples: int
    self_share: float
    total_share: float
    self_error: float
    total_error: float
    gpu_utilization: float | None = None
    phase: str = ""


def functions_by_stack(reader: RunReader) -> Callable[[int], StackFunctions]:
    """Return what gives a stack's functions; keep it to count them again and again."""

    def key(frame: FrameRow) -> FunctionKey:
        return frame.function, frame.file, 0, ""

    @functools.cache
    def functions_of(stack: int) -> StackFunctions:
        frames = reader.frames_of(stack)
        innermost = {key(frame): frame.id for frame in frames}
        return key(frames[-1]), tuple(innermost.items())

    return functions_of


def lines_by_stack(reader: RunReader, phases: PhaseIndex) -> Callable[[int], StackFunctions]:
    """Return what gives the user's line that a stack is in, if any, as ``user_lines`` has them."""

    @functools.cache
    def lines_of(stack: int) -> StackFunctions:
        frames = reader.frames_of(stack)
        # A forked worker does not run the lines of its parent, whose copies are in its stack.
        is_forked = any_means(frames, "child begins")
        line = (None if is_forked else phases.user_line(stack)) or own_frame(frames)
        if line is None:
            return _LIBRARY, ()
        key = line.function, line.file, line.line, phases.of_stack(stack)
        return key if frames[-1] == line else _LIBRARY, ((key, line.id),)

    return lines_of


def hot_functions(
    reader: RunReader,
    profile: Profile,
    busy: Mapping[int, Busy] = {},
    functions_of: Callable[[int], StackFunctions] | None = None,
) -> list[FunctionRow]:
    """Return the functions of a profile, or the user's lines if ``functions_of`` gives these.

    Those with most time of their own come first. ``busy`` is how busy the GPUs were during each
    stack, if known.
    """
    functions_of = functions_of or functions_by_stack(reader)
    within: defaultdict[FunctionKey, dict[int, int]] = defaultdict(dict)
    for stack in profile.samples:
        for key, frame in functions_of(stack)[1]:
            within[key][stack] = frame
    at_leaf = {
        key: [stack for stack in stacks if functions_of(stack)[0] == key]
        for key, stacks in within.items()
    }
    whole_ns = profile.total_ns or 1.0
    own = {key: profile.spent_ns(stacks) / whole_ns for key, stacks in at_leaf.items()}
    total = {key: profile.spent_ns(stacks) / whole_ns for key, stacks in within.items()}
    own_errors = profile.errors(own, lambda stack: frozenset({functions_of(stack)[0]}))
    total_errors = profile.errors(total, lambda stack: frozenset(dict(functions_of(stack)[1])))
    rows = []
    for key, stacks in within.items():
        spent_ns = profile.time_by(stacks.get, stacks)
        # Among lines with equal time the first in the file counts, not the first that was seen.
        hottest = max(
            map(reader.frames.__getitem__, spent_ns), key=lambda row: (spent_ns[row.id], -row.line)
        )
        function, file, _, phase = key
        where = hottest.module_path, hottest.is_library, hottest.line, hottest.source
        seen = profile.seen_in(at_leaf[key]), profile.seen_in(stacks)
        shares = own[key], total[key], own_errors[key], total_errors[key]
        utilization = mean_utilization([busy[stack] for stack in stacks if stack in busy])
        rows.append(FunctionRow(function, file, *where, *seen, *shares, utilization, phase))
    rows.sort(
        key=lambda row: (-row.self_share, -row.total_share, row.module_path, row.function, row.line)
    )
    return rows


class PhaseLine(PhasePlace, frozen=True):
    """A line in a phase; ``share`` is of all the time of its profile."""

    share: float


def phase_shares(profile: Profile, phases: PhaseIndex) -> dict[str, float]:
    """Return the share of each phase in a profile, the largest first."""
    whole_ns = profile.total_ns or 1.0
    spent_ns = profile.time_by(phases.of_stack)
    return {phase: time_ns / whole_ns for phase, time_ns in spent_ns.items()}


def user_lines(profile: Profile, phases: PhaseIndex) -> list[PhaseLine]:
    """Return the user's lines by the time spent at them or below, the most first.

    A line that belongs to two phases is there twice.
    """

    def place_of(stack: int) -> tuple[str, str, str, str, int, str | None] | None:
        frame = phases.user_line(stack)
        return (phases.of_stack(stack), *frame.place) if frame else None

    whole_ns = profile.total_ns or 1.0
    spent_ns = profile.time_by(place_of)
    return [PhaseLine(*place, share=time_ns / whole_ns) for place, time_ns in spent_ns.items()]


def phase_lines(profile: Profile, phases: PhaseIndex) -> tuple[PhaseLine, ...]:
    """Return the user's hottest line of each phase, if it has any, as ``phase_shares`` orders."""
    hottest: dict[str, PhaseLine] = {}
    for line in user_lines(profile, phases):
        hottest.setdefault(line.phase, line)
    return tuple(hottest[phase] for phase in phase_shares(profile, phases) if phase in hottest)
