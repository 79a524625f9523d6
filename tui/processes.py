"""The processes of a run as a tree.

Each has its newest numbers, and the place at which its main thread is most often.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from profd.daemon.analyze.phases import PhaseIndex, own_frame
from profd.daemon.clock import MINUTE_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, ProcessRow
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS
from profd.daemon.timerange import EVER, TimeRange
from profd.daemon.units import percent, plural
from profd.tui.pace import LATELY_NS, Pace
from profd.tui.series import RunSeries
from profd.tui.snapshot import ProcessState

# A script that starts its workers anew each epoch leaves hundreds behind; the last few are enough
# to show.
_ENDED_SHOWN = 16
# More workers of one process become one row, which can be unfolded.
_MOST_APART = 4
_ROLES = {"launcher": 0, "main": 1, "worker": 2, "helper": 3}


class ProcessStates:
    """The states of the processes of one run."""

    def __init__(
        self, reader: RunReader, series: RunSeries, pace: Pace, phases: PhaseIndex
    ) -> None:
        self._reader, self._series, self._pace, self._phases = reader, series, pace, phases
        self._frame_of = functools.cache(self._shown_frame)

    def take(self, about: TimeRange | None) -> tuple[tuple[ProcessState, ...], int]:
        """Return the states of processes in tree order, and how many were left out.

        With a range, they are the states in it, of the processes that lived then. Without one, they
        are the present states, of the processes that run and the last that ended.
        """
        rows, end_ns = list(self._reader.processes.values()), self._reader.info.end_ns
        whole = about or self._reader.info.time
        lived = [row for row in rows if row.life.overlaps(whole)]
        shown = lived if about else _running(lived)
        main_threads = {row.id: row.process for row in self._reader.threads.values() if row.is_main}
        times: defaultdict[int, Counter[tuple[str, FrameRow]]] = defaultdict(Counter)
        now_or_then = about or TimeRange(end_ns - LATELY_NS, end_ns)
        time = now_or_then.open_at(self._reader.info.time)
        for total in self._reader.totals(time, main_threads):
            frame = self._frame_of(total.stack)
            times[main_threads[total.thread]][self._phases.of_stack(total.stack), frame] += (
                total.duration_ns
            )
        states = [self._state(row, depth, times[row.id], about) for depth, row in _tree(shown)]
        return tuple(_folded(states, lived, whole)), len(rows) - len(shown)

    def _shown_frame(self, stack: int) -> FrameRow:
        frames = self._reader.frames_of(stack)
        return own_frame(frames) or frames[-1]

    def _state(
        self,
        row: ProcessRow,
        depth: int,
        times: Counter[tuple[str, FrameRow]],
        about: TimeRange | None,
    ) -> ProcessState:
        phase, frame = max(times, key=times.__getitem__) if times else (None, None)
        steps_per_s = None
        if row.is_main:  # nobody reads the counters of others
            end_ns = min(self._reader.info.end_ns, row.ended_ns or self._reader.info.end_ns)
            steps_per_s = self._pace.of_process(
                row.id, about or TimeRange(end_ns - MINUTE_NS, end_ns)
            )
        return ProcessState(
            row=row,
            depth=depth,
            cpu_cores=self._series.mean("cpu_cores", row.id, about)
            if about
            else self._series.last("cpu_cores", row.id),
            rss_bytes=self._series.last("rss_bytes", row.id, about or EVER),
            threads=self._series.last("threads", row.id, about or EVER),
            gpu_memory_bytes=self._series.last(MEMORY_OF_PROCESS, row.id, about or EVER),
            steps_per_s=steps_per_s,
            phase=phase if row.is_main else None,
            function=frame.function if frame else "",
            where=f"{frame.module_path}:{frame.line}" if frame else "",
        )


def _folded(
    states: Iterable[ProcessState], lived: Sequence[ProcessRow], about: TimeRange
) -> Iterator[ProcessState]:
    """Yield the states, many workers of one process after a state that stands for all of them."""
    for (role, parent), group in groupby(states, lambda one: (one.row.role, one.row.parent)):
        members = [*group]
        if is_many := role == "worker" and len(members) > _MOST_APART:
            alike = [row for row in lived if (row.role, row.parent) == (role, parent)]
            yield _all_of(members, alike, about)
        yield from (replace(one, folded=is_many) for one in members)


def _all_of(
    states: Sequence[ProcessState], rows: Sequence[ProcessRow], about: TimeRange
) -> ProcessState:
    """Return the state that stands for some workers; ``rows`` has all workers of their parent."""
    ended = [row for row in rows if row.ended_ns is not None and row.ended_ns < about.to_ns]
    group, facts = plural(len(rows) - len(ended), "worker"), list[str]()
    if ended:
        group += f" +{len(ended):,} ended"
        begun_ns = max(about.from_ns, min(row.seen_ns for row in rows))
        begun = sum(about.holds(row.seen_ns) for row in rows)
        facts.append(f"{begun * MINUTE_NS / (about.to_ns - begun_ns):.1f} started a minute")
    lived = [state for state in states if state.row.ended_ns is None] or states
    cores = [state.cpu_cores for state in lived if state.cpu_cores is not None]
    if cores:
        low, high = percent(min(cores)), percent(max(cores))
        facts.append(f"CPU {low} to {high}" if low != high else f"CPU {low}")
    return replace(
        lived[0],
        group=group,
        function=" · ".join(facts),
        where="",
        cpu_cores=None,
        rss_bytes=None,
        threads=None,
        gpu_memory_bytes=None,
    )


def _running(rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """Return the processes that run, those that train, and the last others that ended."""
    ended = sorted((row.ended_ns, row.id) for row in rows if row.ended_ns is not None)
    old = {process for _, process in ended[:-_ENDED_SHOWN]}
    return [row for row in rows if row.is_main or row.id not in old]


def _tree(rows: Sequence[ProcessRow]) -> Iterator[tuple[int, ProcessRow]]:
    """Yield (depth, process): children below their parents, the main ones first."""
    there = {row.id for row in rows}
    children: defaultdict[int | None, list[ProcessRow]] = defaultdict(list)
    for row in sorted(
        rows, key=lambda row: (_ROLES.get(row.role, 9), row.ended_ns is not None, row.id)
    ):
        children[row.parent if row.parent in there else None].append(row)
    pending = [(0, row) for row in reversed(children[None])]
    while pending:
        depth, row = pending.pop()
        yield depth, row
        pending += [(depth + 1, child) for child in reversed(children[row.id])]
