"""The processes of a run as a tree, each with its newest numbers and where its main thread mostly is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, ProcessRow
from profd.tui.samples import Places, Samples, UserLines
from profd.tui.snapshot import ProcessState
from profd.tui.timeline.gauges import GPU_MEMORY_OF_PROCESS, Gauges
from profd.tui.timeline.pace import Pace
from profd.tui.view import Range

# Long enough for a worker that is sampled in rotation to have been looked at.
NOW_NS = 10 * SECOND_NS
# Counts of steps are some seconds apart.
PACE_NS = 60 * SECOND_NS
# A script that starts its workers anew each epoch leaves hundreds behind; the last few tell what there is to tell.
ENDED_SHOWN = 16


class Place(msgspec.Struct, frozen=True):
    """Where a thread mostly is."""

    phase: str
    frame: FrameRow


class Census:
    """The processes of one run."""

    def __init__(self, reader: RunReader, gauges: Gauges, pace: Pace, samples: Samples, places: Places) -> None:
        self._reader = reader
        self._gauges = gauges
        self._pace = pace
        self._samples = samples
        self._places = places
        self._user_lines = UserLines(reader)

    def take(self, about: Range | None) -> tuple[tuple[ProcessState, ...], int]:
        """Return the processes in the order of their tree, and how many were left out.

        They are as in a range, which leaves out those that did not live then; without one as they are now, which
        leaves out those that ended long ago.
        """
        shown = self._living(about) if about else self._recent()
        lately = Range(self._reader.info.end_ns - NOW_NS, self._reader.info.end_ns)
        main_threads = {row.process: row.id for row in self._reader.threads.values() if row.is_main}
        times = self._samples.take(about or lately, main_threads.values()).of_threads()
        places = {process: self._place(times.get(thread, {})) for process, thread in main_threads.items()}
        states = [self._state(row, depth, places.get(row.id), about) for depth, row in _tree(shown)]
        return tuple(states), len(self._reader.processes) - len(shown)

    def _living(self, about: Range) -> list[ProcessRow]:
        return [
            row
            for row in self._reader.processes.values()
            if row.seen_ns < about.to_ns and (row.ended_ns is None or row.ended_ns >= about.from_ns)
        ]

    def _recent(self) -> list[ProcessRow]:
        """Return the processes that run, and the last that ended."""
        rows = list(self._reader.processes.values())
        ended = sorted((row for row in rows if row.ended_ns is not None), key=lambda row: row.ended_ns or 0)
        old = {row.id for row in ended[:-ENDED_SHOWN] if row.role != "main"}
        return [row for row in rows if row.id not in old]

    def _state(self, row: ProcessRow, depth: int, place: Place | None, about: Range | None) -> ProcessState:
        return ProcessState(
            row=row,
            depth=depth,
            cpu_cores=self._cpu_cores(row, about),
            rss_bytes=self._last("rss_bytes", row, about),
            threads=self._last("threads", row, about),
            gpu_memory_bytes=self._last(GPU_MEMORY_OF_PROCESS, row, about),
            steps_per_s=self._steps_per_s(row, about),
            phase=place.phase if place and row.role == "main" else None,
            function=place.frame.function if place else "",
            where=f"{place.frame.module_path}:{place.frame.line}" if place else "",
        )

    def _cpu_cores(self, row: ProcessRow, about: Range | None) -> float | None:
        """Return the newest value, or the mean of a range."""
        return self._gauges.of_process("cpu_cores", row.id, about) if about else self._last("cpu_cores", row, about)

    def _last(self, name: str, row: ProcessRow, about: Range | None) -> float | None:
        """Return the newest value, or the last one in a range."""
        return self._gauges.last_of_process(name, row.id, about) if about else self._gauges.newest(name, row.id)

    def _steps_per_s(self, row: ProcessRow, about: Range | None) -> float | None:
        """Return how fast a training process steps; nobody reads the counters of others."""
        if row.role != "main":
            return None
        end_ns = min(self._reader.info.end_ns, row.ended_ns or self._reader.info.end_ns)
        return self._pace.of_process(row.id, about or Range(end_ns - PACE_NS, end_ns))

    def _place(self, times: Mapping[int, int]) -> Place | None:
        """Return where a thread mostly was, by the time of its stacks."""
        places: Counter[tuple[str, int]] = Counter()
        for stack, time_ns in times.items():
            phase, _ = self._places.of_stack(stack)
            frame = self._user_lines.of_stack(stack) or self._reader.stacks[stack].frame
            places[phase, frame] += time_ns
        if not places:
            return None
        phase, frame = places.most_common(1)[0][0]
        return Place(phase, self._reader.frames[frame])


def _tree(rows: Sequence[ProcessRow]) -> Iterator[tuple[int, ProcessRow]]:
    """Yield (depth, process): children below their parents, the main ones first."""
    there = {row.id for row in rows}
    children: defaultdict[int | None, list[ProcessRow]] = defaultdict(list)
    for row in rows:
        children[row.parent if row.parent in there else None].append(row)
    roles = ("launcher", "main", "worker", "helper")
    for below in children.values():
        below.sort(
            key=lambda row: (row.ended_ns is not None, roles.index(row.role) if row.role in roles else 9, row.id)
        )
    pending = [(0, row) for row in reversed(children[None])]
    while pending:
        depth, row = pending.pop()
        yield depth, row
        pending += [(depth + 1, child) for child in reversed(children[row.id])]
