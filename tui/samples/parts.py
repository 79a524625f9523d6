"""The samples of whatever part of a run is looked at, and its hot functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from profd.daemon.analyze.certainty.changes import Changes, ChangesSeen, with_reads
from profd.daemon.analyze.functions import FunctionIndex, FunctionRow, hot_rows
from profd.daemon.analyze.gpu.busy import Busy
from profd.daemon.analyze.lives import Lives
from profd.daemon.analyze.phases import STARTUP, STEP
from profd.daemon.analyze.profile import Profile, process_weights, weighted
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import StackTotal
from profd.tui.samples.block import Block, Seen
from profd.tui.samples.blocks import Blocks
from profd.tui.samples.devices import Devices
from profd.tui.samples.sums import Sums
from profd.tui.samples.tallies import Places
from profd.tui.view import Range, Scope, ScopeKind

# Changes are read interval by interval: of so much of a range, evenly spread, less where there are many threads. They
# tell how exact its shares are.
LOOKED_AT_NS = 60 * SECOND_NS
_LEAST_LOOKED_AT_NS = 12 * SECOND_NS
_SLICES = 30
# Of a range that moves or grows, changes are looked at anew when it is far from what was looked at.
_LEAST_KEPT_NS = 10 * SECOND_NS


class Part(msgspec.Struct, frozen=True):
    """What was seen in a range by the threads of a scope; ``is_whole`` is False where it is an estimate."""

    range: Range
    block: Block
    is_whole: bool

    @property
    def samples(self) -> int:
        """How many samples it rests on."""
        return sum(seen.samples.total() for seen in self.block.threads.values())

    def totals(self) -> Iterator[StackTotal]:
        """Yield what was seen by thread and stack."""
        for thread, seen in self.block.threads.items():
            for stack, samples in seen.samples.items():
                yield StackTotal(thread, stack, samples, seen.time_ns[stack])

    def of_thread(self, thread: int) -> Seen:
        """Return what was seen of a thread."""
        return self.block.threads.get(thread) or Seen()


class Hot(msgspec.Struct, frozen=True):
    """Hot functions with the part that they are of, and how many of its samples: all but those of startup, or all."""

    rows: tuple[FunctionRow, ...]
    part: Part
    samples: int
    is_without_startup: bool


class Samples:
    """The samples of one run."""

    def __init__(self, reader: RunReader, blocks: Blocks, sums: Sums, lives: Lives) -> None:
        self._reader = reader
        self._blocks = blocks
        self._lives = lives
        self._devices = Devices(reader, sums)
        self._indices = {by_line: FunctionIndex(reader, by_line=by_line) for by_line in (False, True)}
        self._changes: dict[int, ChangesSeen] = {}
        self._changes_of: tuple[Range, frozenset[int]] = (Range(0, 0), frozenset())

    def take(self, asked: Range, threads: Collection[int] | None = None) -> Part:
        """Return what was seen in a range of some threads, or of all."""
        return Part(asked, *self._blocks.sum(asked, threads))

    def of_scope(self, scope: Scope, asked: Range) -> Part:
        """Return what was seen in a range of the threads of a scope."""
        return self.take(asked, selection(scope).threads(self._reader))

    def hot(self, scope: Scope, asked: Range, places: Places, *, by_line: bool) -> Hot:
        """Return the functions or lines of a scope in a range, the hottest first.

        Of main threads that train, those are the functions of the training: what starts up does so once.
        """
        profile, part = self.profile(scope, asked)
        counted = training(profile, places) if scope.kind is ScopeKind.MAIN else profile
        busy = {stack: one for stack, one in self.busy(scope, asked).items() if stack in counted.time_ns}
        rows = hot_rows(self._reader, counted, busy, self._indices[by_line])
        return Hot(tuple(rows), part, counted.total_samples, counted is not profile)

    def busy(self, scope: Scope, asked: Range) -> Mapping[int, Busy]:
        """Return how busy the GPUs were during the stacks of a scope in a range, as far as that is known."""
        return self._devices.busy(asked, selection(scope).threads(self._reader))

    def profile(self, scope: Scope, asked: Range) -> tuple[Profile, Part]:
        """Return for how long each stack of a scope ran in a range, and what that rests on."""
        threads = selection(scope).threads(self._reader)
        part = self.take(asked, threads)
        changes = self._changes_in(asked, threads)
        return weighted(self._reader, part.totals(), changes, self.weights(asked)), part

    def weights(self, asked: Range) -> Mapping[int, float]:
        """Return by process what time a second of its recordings in a range stands for."""
        info = self._reader.info
        from_ns = None if asked.from_ns <= info.started_ns else asked.from_ns
        to_ns = None if asked.to_ns >= info.end_ns else asked.to_ns
        return process_weights(self._reader, self._lives, from_ns, to_ns)

    def _changes_in(self, asked: Range, threads: frozenset[int]) -> dict[int, ChangesSeen]:
        """Return the changes in a range by process, looked at anew where it is another one than last time."""
        before, of_threads = self._changes_of
        if of_threads == threads and before.length_ns >= _LEAST_KEPT_NS and asked.is_near(before):
            grown = asked.length_ns / before.length_ns
            return {process: _times(seen, grown) for process, seen in self._changes.items()}
        self._changes, self._changes_of = self._look_at_changes(asked, threads), (asked, threads)
        return self._changes

    def _look_at_changes(self, asked: Range, threads: frozenset[int]) -> dict[int, ChangesSeen]:
        found: dict[int, Changes] = {}
        slices = list(_slices(asked, len(threads)))
        for one in slices:
            rows = list(self._reader.intervals(one.from_ns, one.to_ns, threads))
            for row in rows:
                found.setdefault(self._reader.threads[row.thread].process, Changes()).add(row)
            for changes in found.values():
                changes.forget_place()
        times = asked.length_ns / sum(one.length_ns for one in slices)
        taken = {process: changes.take(max(times, 1.0)) for process, changes in found.items()}
        return with_reads(self._reader, taken, [(one.from_ns, one.to_ns) for one in slices])


def training(profile: Profile, places: Places) -> Profile:
    """Return a profile without startup and import where there is a training in it, else as it is."""
    phases = {stack: places.of_stack(stack)[0] for stack in profile.time_ns}
    if STARTUP not in phases.values() or STEP.isdisjoint(phases.values()):
        return profile
    kept = [stack for stack, phase in phases.items() if phase != STARTUP]
    samples = {stack: profile.samples[stack] for stack in kept}
    return replace(profile, samples=samples, time_ns={stack: profile.time_ns[stack] for stack in kept})


def selection(scope: Scope) -> Selection:
    """Return the selection that a scope stands for."""
    if scope.kind is ScopeKind.PROCESS and scope.process is not None:
        return Selection(processes=frozenset({scope.process}))
    return MAIN_THREADS if scope.kind is ScopeKind.MAIN else Selection()


def _slices(asked: Range, threads: int) -> Iterator[Range]:
    """Yield the parts of a range to look at: all of it, or some that are evenly spread."""
    if asked.length_ns <= LOOKED_AT_NS:
        yield asked
        return
    looked_at_ns = max(LOOKED_AT_NS // max(threads, 1), _LEAST_LOOKED_AT_NS)
    for number in range(_SLICES):
        from_ns = asked.from_ns + asked.length_ns * number // _SLICES
        yield Range(from_ns, from_ns + looked_at_ns // _SLICES)


def _times(seen: ChangesSeen, times: float) -> ChangesSeen:
    squares = {moment: square * times for moment, square in seen.squares.items()}
    return ChangesSeen(squares, seen.open_ns2 * times, seen.reads)
