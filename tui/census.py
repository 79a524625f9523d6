"""The processes of a run as a tree, each with its newest numbers and where its main thread mostly is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, ProcessRow
from profd.tui.gauges import Gauges
from profd.tui.samples import Samples
from profd.tui.snapshot import ProcessState
from profd.tui.tallies import Places, UserLines

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

    def __init__(self, reader: RunReader, gauges: Gauges, places: Places) -> None:
        self._reader = reader
        self._gauges = gauges
        self._places = places
        self._user_lines = UserLines(reader)

    def take(self, samples: Samples) -> tuple[tuple[ProcessState, ...], int]:
        """Return the processes in the order of their tree, and how many that ended long ago were left out."""
        shown = self._shown()
        now = self._stacks_now(samples)
        states = [self._state(row, depth, samples, now) for depth, row in _tree(shown)]
        return tuple(states), len(self._reader.processes) - len(shown)

    def _shown(self) -> list[ProcessRow]:
        """Return the processes worth showing: all once the run is over, else those that run and the last that ended."""
        rows = list(self._reader.processes.values())
        ended = sorted((row for row in rows if row.ended_ns is not None), key=lambda row: row.ended_ns or 0)
        old = {row.id for row in ended[:-ENDED_SHOWN] if row.role != "main"}
        return [row for row in rows if row.id not in old]

    def _state(self, row: ProcessRow, depth: int, samples: Samples, now: dict[int, Counter[int]]) -> ProcessState:
        place = self._place(row, samples, now)
        is_running = row.ended_ns is None
        return ProcessState(
            row=row,
            depth=depth,
            cpu_cores=self._gauges.newest("cpu_cores", row.id) if is_running else None,
            rss_bytes=self._gauges.newest("rss_bytes", row.id) if is_running else None,
            threads=self._gauges.newest("threads", row.id) if is_running else None,
            phase=place.phase if place and row.role == "main" else None,
            function=place.frame.function if place else "",
            where=f"{place.frame.module_path}:{place.frame.line}" if place else "",
        )

    def _stacks_now(self, samples: Samples) -> dict[int, Counter[int]]:
        """Return by thread for how long each stack was seen lately, in ns; nothing once the run is over."""
        seen: defaultdict[int, Counter[int]] = defaultdict(Counter)
        if self._reader.info.state == "live":
            for row in samples.recent(NOW_NS):
                seen[row.thread][row.stack] += row.duration_ns
        return seen

    def _place(self, row: ProcessRow, samples: Samples, now: dict[int, Counter[int]]) -> Place | None:
        """Return where the main thread of a process is: lately while it runs, else over its whole life."""
        threads = [thread.id for thread in self._reader.threads.values() if thread.process == row.id and thread.is_main]
        lately = self._reader.info.state == "live" and row.ended_ns is None
        stacks: Counter[int] = Counter()
        for thread in threads:
            stacks.update(now.get(thread, Counter()) if lately else samples.time_of_thread(thread))
        places: Counter[tuple[str, int]] = Counter()
        for stack, time_ns in stacks.items():
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
