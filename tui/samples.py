"""The samples of a run by thread and stack, and the hot functions of whatever part of them is looked at."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

from profd.daemon.analyze.functions import FunctionRow, hot_functions
from profd.daemon.analyze.profile import Profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow
from profd.tui.tallies import FunctionTally
from profd.tui.view import RECENT_NS, Scope, ScopeKind, View, Window


class Samples:
    """All samples counted, those of the last half minute one by one too."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._recent: deque[IntervalRow] = deque()
        self._threads: frozenset[int] = frozenset()
        self._functions = FunctionTally(reader)

    def add(self, rows: Sequence[IntervalRow]) -> None:
        """Count intervals, and let go of those that are recent no more."""
        for row in rows:
            self._counts[row.thread][row.stack] += row.samples
            if row.thread in self._threads:
                self._functions.add(row.stack, row.samples)
        self._recent.extend(rows)
        # In the order of reading, which is nearly that of time: whoever looks at the recent checks the time again.
        while self._recent and self._recent[0].start_ns < self._reader.info.end_ns - RECENT_NS:
            self._recent.popleft()

    def recent(self, length_ns: int = RECENT_NS) -> list[IntervalRow]:
        """Return the intervals that started in the last ``length_ns``."""
        from_ns = self._reader.info.end_ns - length_ns
        return [row for row in self._recent if row.start_ns >= from_ns]

    def of_thread(self, thread: int) -> Counter[int]:
        """Return stack → samples of a thread over the whole run."""
        return self._counts[thread] if thread in self._counts else Counter()

    def hot_functions(self, view: View) -> tuple[list[FunctionRow], int]:
        """Return the functions of a view, the hottest first, and the samples that they are shares of."""
        threads = selection(view.scope).threads(self._reader)
        if view.window is Window.RECENT:
            profile = self._recent_profile(threads)
            return hot_functions(self._reader, profile), profile.total
        if threads != self._threads:
            self._count_functions_anew(threads)
        return self._functions.rows(), self._functions.samples

    def _recent_profile(self, threads: frozenset[int]) -> Profile:
        counted: Counter[int] = Counter()
        for row in self.recent():
            if row.thread in threads:
                counted[row.stack] += row.samples
        return Profile(samples=dict(counted), total=counted.total())

    def _count_functions_anew(self, threads: frozenset[int]) -> None:
        self._threads, self._functions = threads, FunctionTally(self._reader)
        for thread in threads & self._counts.keys():
            for stack, samples in self._counts[thread].items():
                self._functions.add(stack, samples)


def selection(scope: Scope) -> Selection:
    """Return the selection that a scope stands for."""
    if scope.kind is ScopeKind.PROCESS and scope.process is not None:
        return Selection(processes=frozenset({scope.process}))
    return MAIN_THREADS if scope.kind is ScopeKind.MAIN else Selection()
