"""The samples of whatever part of a run is looked at, and its hot functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from profd.daemon.analyze.certainty.changes import ChangesSeen, take_changes
from profd.daemon.analyze.functions import FunctionIndex, FunctionRow, hot_rows
from profd.daemon.analyze.gpu.busy import Busy, utilization_by_stack
from profd.daemon.analyze.gpu.usage import GpuTracks
from profd.daemon.analyze.lives import Lives
from profd.daemon.analyze.profile import Profile, process_weights, weighted
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import StackTotal
from profd.tui.view import Range, Scope, ScopeKind

# Changes are read interval by interval: of so much of a range, evenly spread, less where there are many threads. They
# tell how exact its shares are.
LOOKED_AT_NS = 60 * SECOND_NS
_LEAST_LOOKED_AT_NS = 12 * SECOND_NS
# Of a range that moves or grows, changes are looked at anew when it is far from what was looked at.
_LEAST_KEPT_NS = 10 * SECOND_NS


class Part(msgspec.Struct, frozen=True):
    """What was seen in a range by the threads of a scope, by thread and stack."""

    range: Range
    totals: Sequence[StackTotal]

    @property
    def samples(self) -> int:
        """How many samples it rests on."""
        return sum(total.samples for total in self.totals)

    def of_threads(self) -> Mapping[int, Mapping[int, int]]:
        """Return by thread the time of its stacks."""
        found: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for total in self.totals:
            found[total.thread][total.stack] = total.duration_ns
        return found


class Hot(msgspec.Struct, frozen=True):
    """Hot functions with the part that they are of."""

    rows: tuple[FunctionRow, ...]
    part: Part


class Samples:
    """The samples of one run."""

    def __init__(self, reader: RunReader, lives: Lives) -> None:
        self._reader = reader
        self._lives = lives
        self._busy: Mapping[int, Busy] = {}
        self._busy_of: tuple[Range, frozenset[int]] = (Range(0, 0), frozenset())
        self._indices = {by_line: FunctionIndex(reader, by_line=by_line) for by_line in (False, True)}
        self._changes: dict[int, ChangesSeen] = {}
        self._changes_of: tuple[Range, frozenset[int]] = (Range(0, 0), frozenset())

    def take(self, asked: Range, threads: Collection[int] | None = None) -> Part:
        """Return what was seen in a range of some threads, or of all."""
        return Part(asked, self._reader.totals(*asked.open_at(self._run()), threads))

    def of_scope(self, scope: Scope, asked: Range) -> Part:
        """Return what was seen in a range of the threads of a scope."""
        return self.take(asked, selection(scope).threads(self._reader))

    def hot(self, scope: Scope, asked: Range, *, by_line: bool) -> Hot:
        """Return the functions or lines of a scope in a range, the hottest first."""
        profile, part = self.profile(scope, asked)
        rows = hot_rows(self._reader, profile, self.busy(scope, asked), self._indices[by_line])
        return Hot(tuple(rows), part)

    def busy(self, scope: Scope, asked: Range) -> Mapping[int, Busy]:
        """Return how busy the GPUs were during the stacks of a scope in a range, as far as that is known.

        While a run grows, they are looked at anew when it is far from what was looked at: that takes long.
        """
        chosen = selection(scope)
        threads, (before, of_threads) = chosen.threads(self._reader), self._busy_of
        is_live = self._reader.info.state == "live"
        if of_threads != threads or not (asked.is_near(before) if is_live else asked == before):
            from_ns, to_ns = asked.open_at(self._run())
            part = msgspec.structs.replace(chosen, from_ns=from_ns, to_ns=to_ns)
            self._busy = utilization_by_stack(self._reader, GpuTracks(self._reader, from_ns, to_ns), part)
            self._busy_of = asked, threads
        return self._busy

    def profile(self, scope: Scope, asked: Range) -> tuple[Profile, Part]:
        """Return for how long each stack of a scope ran in a range, and what that rests on."""
        threads = selection(scope).threads(self._reader)
        part = self.take(asked, threads)
        changes = self._changes_in(asked, threads)
        return weighted(self._reader, part.totals, changes, self.weights(asked)), part

    def weights(self, asked: Range) -> Mapping[int, float]:
        """Return by process what time a second of its recordings in a range stands for."""
        return process_weights(self._reader, self._lives, *asked.open_at(self._run()))

    def _run(self) -> Range:
        return Range(self._reader.info.started_ns, self._reader.info.end_ns)

    def _changes_in(self, asked: Range, threads: frozenset[int]) -> dict[int, ChangesSeen]:
        """Return the changes in a range by process, looked at anew where it is another one than last time."""
        before, of_threads = self._changes_of
        if of_threads == threads and before.length_ns >= _LEAST_KEPT_NS and asked.is_near(before):
            grown = asked.length_ns / before.length_ns
            return {process: _times(seen, grown) for process, seen in self._changes.items()}
        looked_at_ns = LOOKED_AT_NS
        if asked.length_ns > LOOKED_AT_NS:
            looked_at_ns = max(LOOKED_AT_NS // max(len(threads), 1), _LEAST_LOOKED_AT_NS)
        part = Selection(asked.from_ns, asked.to_ns)
        self._changes = take_changes(self._reader, part, threads, looked_at_ns)
        self._changes_of = (asked, threads)
        return self._changes


def selection(scope: Scope) -> Selection:
    """Return the selection that a scope stands for."""
    if scope.kind is ScopeKind.PROCESS and scope.process is not None:
        return Selection(processes=frozenset({scope.process}))
    return MAIN_THREADS if scope.kind is ScopeKind.MAIN else Selection()


def _times(seen: ChangesSeen, times: float) -> ChangesSeen:
    squares = {moment: square * times for moment, square in seen.squares.items()}
    return ChangesSeen(squares, seen.open_ns2 * times, seen.reads)
