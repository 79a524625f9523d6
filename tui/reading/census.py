"""The processes of a run as a tree, each with its newest numbers and where its main thread mostly is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, ProcessRow
from profd.tui.samples.parts import Part, Samples
from profd.tui.samples.tallies import Places, UserLines
from profd.tui.snapshot import ProcessState
from profd.tui.timeline.gauges import Gauges
from profd.tui.view import Range

# Long enough for a worker that is sampled in rotation to have been looked at.
NOW_NS = 10 * SECOND_NS
# A script that starts its workers anew each epoch leaves hundreds behind; the last few tell what there is to tell.
ENDED_SHOWN = 16


class Place(msgspec.Struct, frozen=True):
    """Where a thread mostly is."""

    phase: str
    frame: FrameRow


class Census:
    """The processes of one run."""

    def __init__(self, reader: RunReader, gauges: Gauges, samples: Samples, places: Places) -> None:
        self._reader = reader
        self._gauges = gauges
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
        threads = [thread.id for thread in self._reader.threads.values() if thread.is_main]
        part = self._samples.take(about or lately, threads)
        states = [self._state(row, depth, part, about) for depth, row in _tree(shown)]
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

    def _state(self, row: ProcessRow, depth: int, part: Part, about: Range | None) -> ProcessState:
        place = self._place(row, part)
        return ProcessState(
            row=row,
            depth=depth,
            cpu_cores=self._value("cpu_cores", row, about),
            rss_bytes=self._value("rss_bytes", row, about),
            threads=self._value("threads", row, about),
            phase=place.phase if place and row.role == "main" else None,
            function=place.frame.function if place else "",
            where=f"{place.frame.module_path}:{place.frame.line}" if place else "",
        )

    def _value(self, name: str, row: ProcessRow, about: Range | None) -> float | None:
        if about is not None:
            return self._gauges.of_process(name, row.id, about)
        return self._gauges.newest(name, row.id) if row.ended_ns is None else None

    def _place(self, row: ProcessRow, part: Part) -> Place | None:
        """Return where the main thread of a process mostly was."""
        places: Counter[tuple[str, int]] = Counter()
        for thread in self._reader.threads.values():
            if thread.process != row.id or not thread.is_main:
                continue
            for stack, time_ns in part.of_thread(thread.id).time_ns.items():
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
