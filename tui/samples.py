"""The samples of a run by thread and stack, and the hot functions of whatever part of them is looked at."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence

from profd.daemon.analyze.certainty.changes import Changes, changes_of, take_changes
from profd.daemon.analyze.functions import FunctionRow, FunctionTimes, hot_functions
from profd.daemon.analyze.lives import Lives
from profd.daemon.analyze.profile import process_weights, weighted
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow, StackTotal
from profd.tui.view import RECENT_NS, Scope, ScopeKind, View, Window


class Seen:
    """What was seen of a thread: its samples, and the time that they stand for, by stack."""

    __slots__ = ("samples", "time_ns")

    def __init__(self) -> None:
        self.samples: Counter[int] = Counter()
        self.time_ns: Counter[int] = Counter()

    def add(self, row: IntervalRow) -> None:
        """Count an interval."""
        self.samples[row.stack] += row.samples
        self.time_ns[row.stack] += row.duration_ns


class Samples:
    """All samples counted, those of the last half minute one by one too."""

    def __init__(self, reader: RunReader, lives: Lives) -> None:
        self._reader = reader
        self._lives = lives
        self._seen: defaultdict[int, Seen] = defaultdict(Seen)
        self._recent: deque[IntervalRow] = deque()
        self._threads: frozenset[int] = frozenset()
        self._functions: dict[int, FunctionTimes] = {}
        self._changes: dict[int, Changes] = {}
        self._read_to_ns: dict[int, int] = {}

    def add(self, rows: Sequence[IntervalRow]) -> None:
        """Count intervals, and let go of those that are recent no more."""
        for row in rows:
            self._seen[row.thread].add(row)
            self._read_to_ns[row.thread] = row.start_ns
            if row.thread in self._threads:
                self._functions_of(row.thread).add(row.stack, row.samples, row.duration_ns)
        self._add_changes(row for row in rows if row.thread in self._threads)
        self._recent.extend(rows)
        # In the order of reading, which is nearly that of time: whoever looks at the recent checks the time again.
        while self._recent and self._recent[0].start_ns < self._reader.info.end_ns - RECENT_NS:
            self._recent.popleft()

    def recent(self, length_ns: int = RECENT_NS) -> list[IntervalRow]:
        """Return the intervals that started in the last ``length_ns``."""
        from_ns = self._reader.info.end_ns - length_ns
        return [row for row in self._recent if row.start_ns >= from_ns]

    def time_of_thread(self, thread: int) -> Counter[int]:
        """Return stack → nanoseconds of a thread over the whole run."""
        return self._seen[thread].time_ns if thread in self._seen else Counter()

    def hot_functions(self, view: View) -> tuple[list[FunctionRow], int]:
        """Return the functions of a view, the hottest first, and the samples that they rest on."""
        threads = selection(view.scope).threads(self._reader)
        if view.window is Window.RECENT:
            return self._recent_functions(threads)
        if threads != self._threads:
            self._count_functions_anew(threads)
        return self._whole_functions()

    def _whole_functions(self) -> tuple[list[FunctionRow], int]:
        """Return the functions of the whole run, weighed anew: what a recording stands for changes in time."""
        times = FunctionTimes(self._reader)
        for process, of_process in self._functions.items():
            times.update(of_process, self._lives.weight(process))
        samples = sum(self._seen[thread].samples.total() for thread in self._threads & self._seen.keys())
        return times.rows(), samples

    def _recent_functions(self, threads: frozenset[int]) -> tuple[list[FunctionRow], int]:
        end_ns = self._reader.info.end_ns
        rows = [row for row in self.recent() if row.thread in threads]
        totals = [StackTotal(row.thread, row.stack, row.samples, row.duration_ns) for row in rows]
        weights = process_weights(self._reader, self._lives, end_ns - RECENT_NS, None)
        profile = weighted(self._reader, totals, changes_of(rows, self._reader), weights)
        return hot_functions(self._reader, profile), profile.total_samples

    def _count_functions_anew(self, threads: frozenset[int]) -> None:
        self._threads, self._functions = threads, {}
        for thread in threads & self._seen.keys():
            seen, functions = self._seen[thread], self._functions_of(thread)
            for stack, samples in seen.samples.items():
                functions.add(stack, samples, seen.time_ns[stack])
        self._changes = {}
        self._count_changes_anew(threads)

    def _count_changes_anew(self, threads: frozenset[int]) -> None:
        known = [self._read_to_ns[thread] for thread in threads & self._read_to_ns.keys()]
        read = Selection(to_ns=max(known, default=0) + 1)
        for process, seen in take_changes(self._reader, read, threads).items():
            self._functions[process].add_changes(seen)

    def _add_changes(self, rows: Iterable[IntervalRow]) -> None:
        """Count the changes of threads whose stacks were counted."""
        for row in rows:
            process = self._reader.threads[row.thread].process
            self._changes.setdefault(process, Changes()).add(row)
        for process, changes in self._changes.items():
            self._functions[process].add_changes(changes.take())

    def _functions_of(self, thread: int) -> FunctionTimes:
        process = self._reader.threads[thread].process
        if process not in self._functions:
            self._functions[process] = FunctionTimes(self._reader)
        return self._functions[process]


def selection(scope: Scope) -> Selection:
    """Return the selection that a scope stands for."""
    if scope.kind is ScopeKind.PROCESS and scope.process is not None:
        return Selection(processes=frozenset({scope.process}))
    return MAIN_THREADS if scope.kind is ScopeKind.MAIN else Selection()
