"""The processes of a run as a tree.

Each has its newest numbers, and the place at which its main thread is most often.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from profd.daemon.analyze.phases import PhaseIndex, own_frame
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, ProcessRow
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS
from profd.daemon.timerange import TimeRange
from profd.tui.pace import Pace
from profd.tui.series import RunSeries
from profd.tui.snapshot import ProcessState

# Long enough for a worker that is sampled in rotation to have been looked at.
_NOW_NS = 10 * SECOND_NS
# Counts of steps are some seconds apart.
_PACE_NS = 60 * SECOND_NS
# A script that starts its workers anew each epoch leaves hundreds behind; the last few are enough
# to show.
_ENDED_SHOWN = 16
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
        shown = [row for row in rows if row.life.overlaps(about)] if about else _running(rows)
        main_threads = {row.id: row.process for row in self._reader.threads.values() if row.is_main}
        times: defaultdict[int, Counter[tuple[str, FrameRow]]] = defaultdict(Counter)
        now_or_then = about or TimeRange(end_ns - _NOW_NS, end_ns)
        time = now_or_then.open_at(self._reader.info.time)
        for total in self._reader.totals(time, main_threads):
            frame = self._frame_of(total.stack)
            times[main_threads[total.thread]][self._phases.of_stack(total.stack), frame] += (
                total.duration_ns
            )
        states = [self._state(row, depth, times[row.id], about) for depth, row in _tree(shown)]
        return tuple(states), len(rows) - len(shown)

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
        if row.role == "main":  # nobody reads the counters of others
            end_ns = min(self._reader.info.end_ns, row.ended_ns or self._reader.info.end_ns)
            steps_per_s = self._pace.of_process(
                row.id, about or TimeRange(end_ns - _PACE_NS, end_ns)
            )
        return ProcessState(
            row=row,
            depth=depth,
            cpu_cores=self._series.mean("cpu_cores", row.id, about)
            if about
            else self._series.last("cpu_cores", row.id),
            rss_bytes=self._series.last("rss_bytes", row.id, about),
            threads=self._series.last("threads", row.id, about),
            gpu_memory_bytes=self._series.last(MEMORY_OF_PROCESS, row.id, about),
            steps_per_s=steps_per_s,
            phase=phase if row.role == "main" else None,
            function=frame.function if frame else "",
            where=f"{frame.module_path}:{frame.line}" if frame else "",
        )


def _running(rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """Return the processes that run, those that train, and the last others that ended."""
    ended = sorted((row.ended_ns, row.id) for row in rows if row.ended_ns is not None)
    old = {process for _, process in ended[:-_ENDED_SHOWN]}
    return [row for row in rows if row.role == "main" or row.id not in old]


def _tree(rows: Sequence[ProcessRow]) -> Iterator[tuple[int, ProcessRow]]:
    """Yield (depth, process): children below their parents, the main ones first."""
    there = {row.id for row in rows}
    children: defaultdict[int | None, list[ProcessRow]] = defaultdict(list)
    for row in sorted(
        rows, key=lambda row: (row.ended_ns is not None, _ROLES.get(row.role, 9), row.id)
    ):
        children[row.parent if row.parent in there else None].append(row)
    pending = [(0, row) for row in reversed(children[None])]
    while pending:
        depth, row = pending.pop()
        yield depth, row
        pending += [(depth + 1, child) for child in reversed(children[row.id])]
