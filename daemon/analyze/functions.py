"""Hot functions and lines: self and total time, share by phase, and GPU utilization meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import msgspec

from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import Profile, selected_pieces
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.uncertainty import ShareVariance, TransitionsSeen
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Rest
from profd.daemon.store.rows import FrameRow


class Busy(msgspec.Struct, frozen=True):
    """How busy the GPUs of a process were during a stack: ``utilization`` is a mean over the ``known_ns`` of it."""

    utilization: float
    known_ns: float


def utilization_by_stack(
    reader: RunReader, tracks: GpuTracks, selection: Selection, phases: PhaseIndex | None = None
) -> dict[int, Busy]:
    """Return how busy the GPUs were during each stack of a selection, for the stacks of which that is known."""
    threads = selection.threads(reader)
    if not threads or not tracks.devices:
        return {}
    times = _Times()
    if selection.when:
        times.read(reader, selection, Rest(threads, selection.from_ns, selection.to_ns), phases)
        return times.busy()
    for one in reader.sums.split(selection.from_ns, selection.to_ns, threads):
        index = None if selection.phase is None else phases or PhaseIndex(reader)
        for row in reader.sums.by_stack(one):
            if index is None or index.of_stack(row.stack) == selection.phase:
                times.add(row.stack, row.known_ns, row.busy_ns)
        for rest in one.rest:
            times.read(reader, selection, rest, phases)
    return times.busy()


class _Times:
    """By stack, for how long it is known how busy the GPUs were, and that time weighted with how busy they were."""

    def __init__(self) -> None:
        self._known_ns: defaultdict[int, float] = defaultdict(float)
        self._busy_ns: defaultdict[int, float] = defaultdict(float)

    def add(self, stack: int, known_ns: float, busy_ns: float) -> None:
        """Count some time of a stack."""
        self._known_ns[stack] += known_ns
        self._busy_ns[stack] += busy_ns

    def read(self, reader: RunReader, selection: Selection, rest: Rest, phases: PhaseIndex | None) -> None:
        """Count the intervals of a range of time one by one."""
        tracks = GpuTracks(reader, rest.from_ns, rest.to_ns)
        part = msgspec.structs.replace(selection, from_ns=rest.from_ns, to_ns=rest.to_ns)
        for piece in selected_pieces(reader, part, rest.threads, phases):
            mean, known_ns = tracks.of_process(reader.threads[piece.thread].process).mean(piece.start_ns, piece.end_ns)
            self.add(piece.stack, known_ns, mean * known_ns)

    def busy(self) -> dict[int, Busy]:
        """Return how busy the GPUs were during each stack of which that is known."""
        known = {stack: known_ns for stack, known_ns in self._known_ns.items() if known_ns}
        return {stack: Busy(self._busy_ns[stack] / known_ns, known_ns) for stack, known_ns in known.items()}


FunctionKey = tuple[str, str, int]
"""A function, its file, and the line where lines are told apart, else 0."""
StackFunctions = tuple[FunctionKey, tuple[tuple[FunctionKey, int], ...]]
"""What is at the leaf of a stack, and all that is in it once, each with its innermost frame."""


class FunctionRow(msgspec.Struct, frozen=True):
    """A function, or one line of it, with its shares of the time of a profile, 0 to 1.

    ``self`` is what was spent with the function at the leaf, ``total`` with it anywhere in the stack (once, however
    often it recurs). ``line`` is the line of it that it mostly stood at, ``source`` its text. Samples are the evidence;
    errors are standard errors of the shares. ``gpu_utilization`` is the mean over the time with the function anywhere
    in the stack, None where no GPU was read meanwhile.
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


class FunctionIndex:
    """The functions of each stack, or the lines; to be kept by whoever counts them again and again."""

    def __init__(self, reader: RunReader, *, by_line: bool = False) -> None:
        self._reader = reader
        self._by_line = by_line
        self._known: dict[int, StackFunctions] = {}

    def of_stack(self, stack: int) -> StackFunctions:
        """Return the function at the leaf, and each function of the stack once with its innermost frame."""
        found = self._known.get(stack)
        if found is None:
            frames = self._reader.frames_of(stack)
            innermost = {self._key(frame): frame.id for frame in frames}
            found = self._known[stack] = (self._key(frames[-1]), tuple(innermost.items()))
        return found

    def _key(self, frame: FrameRow) -> FunctionKey:
        return frame.function, frame.file, frame.line if self._by_line else 0


class FunctionTimes:
    """Samples and time of functions, or of their lines, added to stack by stack."""

    def __init__(self, reader: RunReader, index: FunctionIndex) -> None:
        self._reader = reader
        self._index = index
        self.total_ns = 0.0
        self.own_ns: defaultdict[FunctionKey, float] = defaultdict(float)
        self.own_samples: Counter[FunctionKey] = Counter()
        self.time_ns: defaultdict[FunctionKey, float] = defaultdict(float)
        self.samples: Counter[FunctionKey] = Counter()
        self.at_frame: defaultdict[FunctionKey, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
        self._busy_ns: defaultdict[FunctionKey, float] = defaultdict(float)
        self._known_ns: defaultdict[FunctionKey, float] = defaultdict(float)
        self._stacks: dict[int, StackFunctions] = {}
        self._own_doubt = ShareVariance(self._leaf_of)
        self._doubt = ShareVariance(self._functions_of)

    def add(self, stack: int, samples: int, time_ns: float) -> None:
        """Count samples of a stack, and the time that they stand for."""
        leaf, functions = self._functions(stack)
        self.total_ns += time_ns
        self.own_ns[leaf] += time_ns
        self.own_samples[leaf] += samples
        for key, frame in functions:
            self.time_ns[key] += time_ns
            self.samples[key] += samples
            self.at_frame[key][frame] += time_ns

    def add_changes(self, seen: TransitionsSeen) -> None:
        """Count changes from stack to stack, once the stacks themselves were added: others are not selected."""
        self._own_doubt.add(seen)
        self._doubt.add(seen)

    def add_busy(self, stack: int, busy: Busy) -> None:
        """Count how busy the GPUs were during a stack."""
        for key, _ in self._functions(stack)[1]:
            self._busy_ns[key] += busy.utilization * busy.known_ns
            self._known_ns[key] += busy.known_ns

    def update(self, other: FunctionTimes, weight: float) -> None:
        """Count what another one counted, its times weighted."""
        self._own_doubt.update(other._own_doubt, weight)
        self._doubt.update(other._doubt, weight)
        self.total_ns += other.total_ns * weight
        self.own_samples.update(other.own_samples)
        self.samples.update(other.samples)
        for own, others in ((self.own_ns, other.own_ns), (self.time_ns, other.time_ns)):
            for key, time_ns in others.items():
                own[key] += time_ns * weight
        for key, frames in other.at_frame.items():
            for frame, time_ns in frames.items():
                self.at_frame[key][frame] += time_ns * weight

    def rows(self) -> list[FunctionRow]:
        """Return the functions, those with the most time of their own first."""
        rows = [self._row(key) for key in self.time_ns]
        rows.sort(key=lambda row: (-row.self_share, -row.total_share, row.module_path, row.function, row.line))
        return rows

    def _row(self, key: FunctionKey) -> FunctionRow:
        at_frame = self.at_frame[key]
        # Of lines with equal time the first in the file: the order of counting must not show.
        hottest = max((self._reader.frames[frame] for frame in at_frame), key=lambda row: (at_frame[row.id], -row.line))
        own, total = (times[key] / (self.total_ns or 1.0) for times in (self.own_ns, self.time_ns))
        return FunctionRow(
            function=key[0],
            file=key[1],
            module_path=hottest.module_path,
            is_library=hottest.is_library,
            line=hottest.line,
            source=hottest.source,
            self_samples=self.own_samples[key],
            total_samples=self.samples[key],
            self_share=own,
            total_share=total,
            self_error=self._own_doubt.standard_error(key, own, self.total_ns),
            total_error=self._doubt.standard_error(key, total, self.total_ns),
            gpu_utilization=self._busy_ns[key] / self._known_ns[key] if self._known_ns.get(key) else None,
        )

    def _functions(self, stack: int) -> StackFunctions:
        """Return the function at the leaf, and each function of the stack once with its innermost frame."""
        found = self._stacks[stack] = self._index.of_stack(stack)
        return found

    def _leaf_of(self, stack: int) -> frozenset[FunctionKey]:
        return frozenset({self._stacks[stack][0]}) if stack in self._stacks else frozenset()

    def _functions_of(self, stack: int) -> frozenset[FunctionKey]:
        return frozenset(key for key, _ in self._stacks[stack][1]) if stack in self._stacks else frozenset()


def hot_functions(reader: RunReader, profile: Profile, busy: Mapping[int, Busy] | None = None) -> list[FunctionRow]:
    """Return the functions of a profile, those with the most time of their own first.

    ``busy`` is how busy the GPUs were during each stack, where that is known.
    """
    return hot_rows(reader, profile, busy, FunctionIndex(reader))


def hot_rows(
    reader: RunReader, profile: Profile, busy: Mapping[int, Busy] | None, index: FunctionIndex
) -> list[FunctionRow]:
    """Return the functions or lines of a profile, by an index that may know its stacks from earlier ones."""
    times = FunctionTimes(reader, index)
    for stack, samples in profile.samples.items():
        times.add(stack, samples, profile.time_ns[stack])
    for stack, one in (busy or {}).items():
        times.add_busy(stack, one)
    times.add_changes(profile.changes)
    return times.rows()


_Place = tuple[str, str, str, str, int, str | None]


class PhaseLine(msgspec.Struct, frozen=True):
    """A line of the user's code in a phase; ``share`` is of all the time of the profile that it is taken from."""

    phase: str
    function: str
    file: str
    module_path: str
    line: int
    source: str | None
    share: float


def phase_shares(profile: Profile, phases: PhaseIndex) -> dict[str, float]:
    """Return the share of each phase that a profile has time of, the largest first."""
    spent_ns: defaultdict[str, float] = defaultdict(float)
    for stack, time_ns in profile.time_ns.items():
        spent_ns[phases.of_stack(stack)] += time_ns
    whole_ns = profile.total_ns or 1.0
    return {phase: spent_ns[phase] / whole_ns for phase in sorted(spent_ns, key=lambda phase: -spent_ns[phase])}


def user_lines(profile: Profile, phases: PhaseIndex) -> list[PhaseLine]:
    """Return the lines of the user's code by the time that went by at them or below, those with the most first.

    A line that belongs to two phases is there twice.
    """
    spent_ns: defaultdict[_Place, float] = defaultdict(float)
    for stack, time_ns in profile.time_ns.items():
        frame = phases.user_line(stack)
        if frame is not None:
            place = (phases.of_stack(stack), frame.function, frame.file, frame.module_path, frame.line, frame.source)
            spent_ns[place] += time_ns
    whole_ns = profile.total_ns or 1.0
    lines = [PhaseLine(*place, share=time_ns / whole_ns) for place, time_ns in spent_ns.items()]
    return sorted(lines, key=lambda line: -line.share)


def phase_lines(profile: Profile, phases: PhaseIndex) -> tuple[PhaseLine, ...]:
    """Return the hottest line of the user's code of each phase, in the order of ``phase_shares``.

    A phase without any user code in its stacks is left out.
    """
    hottest: dict[str, PhaseLine] = {}
    for line in user_lines(profile, phases):
        hottest.setdefault(line.phase, line)
    return tuple(hottest[phase] for phase in phase_shares(profile, phases) if phase in hottest)
