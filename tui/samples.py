"""The samples of the part of a run that is looked at: phases, lines and hot functions.

A run of a day has too many stacks to go through twice a second; what is new since the last look is always few.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from profd.daemon.analyze.coverage import Lives
from profd.daemon.analyze.functions import Busy, FunctionIndex, FunctionRow, hot_functions, utilization_by_stack
from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import Profile, process_weights, weighted
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.uncertainty import TransitionsSeen, take_transitions
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, StackTotal
from profd.tui.snapshot import PhaseShare, Verdict
from profd.tui.view import Range

# Changes say how exact the shares of a range are. They are read interval by interval: of so much of it, evenly spread,
# less where there are many threads.
LOOKED_AT_NS = 60 * SECOND_NS
_LEAST_LOOKED_AT_NS = 12 * SECOND_NS
# Of a range that moves or grows, changes are read again when it is far from what was read.
_LEAST_KEPT_NS = 10 * SECOND_NS


class Samples:
    """The samples of one run."""

    def __init__(self, reader: RunReader, lives: Lives) -> None:
        self._reader, self._lives = reader, lives
        self._indices = {by_line: FunctionIndex(reader, by_line=by_line) for by_line in (False, True)}
        self._busy: Mapping[int, Busy] = {}
        self._changes: dict[int, TransitionsSeen] = {}
        self._busy_of = self._changes_of = Range(0, 0), frozenset[int]()

    def totals(self, asked: Range, threads: Collection[int] | None = None) -> Sequence[StackTotal]:
        """Return what was seen in a range of some threads, or of all, by thread and stack."""
        return self._reader.totals(*asked.open_at(Range.of(self._reader.info)), threads)

    def of_scope(self, scope: Selection, asked: Range) -> Sequence[StackTotal]:
        return self.totals(asked, scope.threads(self._reader))

    def hot(self, scope: Selection, asked: Range, *, by_line: bool) -> tuple[FunctionRow, ...]:
        busy, index = self.busy(scope, asked), self._indices[by_line]
        return tuple(hot_functions(self._reader, self.profile(scope, asked), busy, index))

    def busy(self, scope: Selection, asked: Range) -> Mapping[int, Busy]:
        """Return how busy the GPUs were during the stacks of a scope in a range, as far as that is known.

        While a run grows, they are read again when the range is far from the one that was read: that takes long.
        """
        threads, (before, of_threads) = scope.threads(self._reader), self._busy_of
        is_live = self._reader.info.state == "live"
        if of_threads != threads or not (asked.is_near(before) if is_live else asked == before):
            from_ns, to_ns = asked.open_at(Range.of(self._reader.info))
            tracks = GpuTracks(self._reader, from_ns, to_ns)
            self._busy = utilization_by_stack(self._reader, tracks, scope.between(from_ns, to_ns))
            self._busy_of = asked, threads
        return self._busy

    def profile(self, scope: Selection, asked: Range) -> Profile:
        changes = self._changes_in(asked, scope.threads(self._reader))
        return weighted(self._reader, self.of_scope(scope, asked), changes, self.weights(asked))

    def weights(self, asked: Range) -> Mapping[int, float]:
        """Return by process what time a second of its recordings in a range stands for."""
        return process_weights(self._reader, self._lives, *asked.open_at(Range.of(self._reader.info)))

    def _changes_in(self, asked: Range, threads: frozenset[int]) -> dict[int, TransitionsSeen]:
        """Return the changes in a range by process, read again where the range is far from that of last time."""
        before, of_threads = self._changes_of
        if of_threads == threads and before.length_ns >= _LEAST_KEPT_NS and asked.is_near(before):
            grown, found = asked.length_ns / before.length_ns, {}
            for process, seen in self._changes.items():
                squares = {moment: square * grown for moment, square in seen.squares.items()}
                found[process] = TransitionsSeen(squares, seen.open_ns2 * grown, seen.reads)
            return found
        many = max(len(threads), 1) if asked.length_ns > LOOKED_AT_NS else 1
        part, looked_at_ns = Selection(asked.from_ns, asked.to_ns), max(LOOKED_AT_NS // many, _LEAST_LOOKED_AT_NS)
        self._changes = take_transitions(self._reader, part, threads, looked_at_ns)
        self._changes_of = (asked, threads)
        return self._changes


Places = Callable[[int], tuple[str, int]]


def places_of(phases: PhaseIndex) -> Places:
    """Return what finds, once a stack, its phase and the frame's id of the user's line that it owes it to, or 0."""

    @functools.cache
    def place(stack: int) -> tuple[str, int]:
        frame = phases.user_line(stack)
        return phases.of_stack(stack), frame.id if frame else 0

    return place


def user_frame(reader: RunReader, stack: int) -> FrameRow | None:
    """Return the innermost frame of the user's own code in a stack; None where it is all library.

    What lies outside of a forked child's start is its parent's, copied with the rest: not what the child is doing.
    """
    for frame in reversed(reader.frames_of(stack)):
        if not frame.is_library:
            return frame
        if frame.module_path == "multiprocessing/process.py" and frame.function.endswith("_bootstrap"):
            break
    return None


class PhaseTally:
    """Time by phase, and by the user's line within each phase."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._time_ns: defaultdict[tuple[str, int], float] = defaultdict(float)

    def add(self, stack: int, time_ns: float) -> None:
        self._time_ns[self._places(stack)] += time_ns

    def update(self, other: PhaseTally, weight: float) -> None:
        for place, time_ns in other._time_ns.items():
            self._time_ns[place] += time_ns * weight

    def shares(self) -> tuple[PhaseShare, ...]:
        of_phases: defaultdict[str, float] = defaultdict(float)
        for (phase, _), time_ns in self._time_ns.items():
            of_phases[phase] += time_ns
        whole_ns = sum(of_phases.values())
        order = sorted(of_phases, key=lambda phase: -of_phases[phase])
        return tuple(PhaseShare(phase, of_phases[phase] / whole_ns) for phase in order if of_phases[phase])

    def verdict(self, reader: RunReader, threads: int) -> Verdict | None:
        """Return the largest phase with the line that most of it was called from; None without samples."""
        shares = self.shares()
        if not shares:
            return None
        phase = shares[0].phase
        lines = {frame: time_ns for (name, frame), time_ns in self._time_ns.items() if name == phase and frame}
        frame = reader.frames[max(lines, key=lambda frame: lines[frame])] if lines else None
        where, source = (f"{frame.module_path}:{frame.line}", frame.source or "") if frame else ("", "")
        return Verdict(phase, shares[0].share, where, source, threads)
