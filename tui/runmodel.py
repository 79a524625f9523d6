"""Everything that the dashboard knows of a run, kept up to date by reading what is new and nothing twice.

Belongs to the feed's thread, as its reader does. Knows nothing of screens: it answers a ``View`` with a ``Snapshot``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping

from profd.daemon.analyze.coverage import COST_SERIES, Lives, covered_share
from profd.daemon.analyze.functions import Busy
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import Profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.naming import process_title
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import EventRow
from profd.tui.processes import Census
from profd.tui.samples import Hot, Part, PhaseTally, Places, Samples
from profd.tui.snapshot import Gauge, Lane, PhaseShare, ProcessState, Snapshot, Timeline, Vitals
from profd.tui.timeline.bins import Ruler
from profd.tui.timeline.gauges import Gauges, with_slope
from profd.tui.timeline.lanes import Lanes
from profd.tui.timeline.pace import Pace
from profd.tui.timeline.scrub import marks_of
from profd.tui.view import Range, ScopeKind, View

BATCH_RECORDINGS = 4096
EVERYTHING = Selection()


class RunModel:
    """What was read of one run so far."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        phases = PhaseIndex(reader)
        self._places = Places(phases)
        self._lives = Lives(reader)
        self._samples = Samples(reader, self._lives)
        self._lanes = Lanes(reader, self._places)
        self._gauges = Gauges(reader)
        self._pace = Pace(reader, phases)
        self._census = Census(reader, self._gauges, self._pace, self._samples, self._places)
        self._events: list[EventRow] = []
        self._last_recording = 0
        # What was recorded up to here is read when it is asked for.
        self._opened_at = reader.newest_id("recording")
        self._has_more = False
        self._was_read = False

    def catch_up(self) -> bool:
        """Take in what was written since, then a part of what was there before; False when that was all there is."""
        recordings = self._reader.recordings_after(self._last_recording, BATCH_RECORDINGS)
        # After the recordings, so that every stack and thread that their intervals name is known.
        self._reader.refresh()
        self._lives.add(recordings)
        self._lanes.add(row for row in recordings if row.id > self._opened_at)
        self._gauges.catch_up()
        self._pace.catch_up()
        self._events += self._reader.events(self._events[-1].id if self._events else 0)
        if recordings:
            self._last_recording = recordings[-1].id
        if len(recordings) < BATCH_RECORDINGS:
            self._read_backlog()
        self._has_more = len(recordings) == BATCH_RECORDINGS or self.has_backlog
        self._was_read = self._was_read or (self._lanes.is_drawn and not self._has_more)
        return self._has_more

    @property
    def has_backlog(self) -> bool:
        """Whether something that was there before is still to be read."""
        return self._gauges.has_backlog or self._lanes.has_backlog

    def profile(self, view: View) -> Profile:
        """Return for how long each stack ran in what the view is about."""
        return self._samples.profile(view.scope, self._about(view))[0]

    def busy(self, view: View) -> Mapping[int, Busy]:
        """Return how busy the GPUs were during each stack in what the view is about."""
        return self._samples.busy(view.scope, self._about(view))

    def phase_of(self, stack: int) -> str:
        """Return the phase of a stack."""
        return self._places.of_stack(stack)[0]

    def snapshot(self, view: View) -> Snapshot:
        """Return the run as it is now, in this view."""
        info = self._reader.info
        ruler, about = self._shown(view)[0], self._about(view)
        chosen = about if view.chosen else None
        hot = self._hot(view, about)
        mains = hot.part if view.scope.kind is ScopeKind.MAIN else self._samples.take(about, self._lanes.ids())
        tallies = self._tallies(mains)
        lanes = self._draw_lanes(ruler, tallies)
        processes, left_out = self._processes(view, about)
        return Snapshot(
            info=info,
            view=view,
            read_share=self._read_share(),
            vitals=self._vitals(),
            verdict=self._together(tallies, about).verdict(self._reader, len(lanes)),
            timeline=Timeline(
                ruler=ruler,
                run=Range(info.started_ns, info.end_ns),
                lanes=lanes,
                gauges=self._draw_gauges(ruler, chosen),
                marks=marks_of(self._events, self._reader.windows()),
            ),
            functions=hot.rows,
            scope_name=self._scope_name(view),
            samples=hot.part.samples,
            from_ns=about.from_ns,
            to_ns=about.to_ns,
            process_rows=tuple(self._reader.processes.values()),
            processes=processes,
            left_out=left_out,
            events=tuple(self._events),
        )

    def _hot(self, view: View, about: Range) -> Hot:
        """Return the hot functions while they are shown, else what they would be of, as the flame graph is."""
        if view.tab == "hot":
            return self._samples.hot(view.scope, about, by_line=view.by_line)
        return Hot((), self._samples.of_scope(view.scope, about))

    def _processes(self, view: View, about: Range) -> tuple[tuple[ProcessState, ...], int]:
        """Return the processes while they are shown, and how many are left out."""
        if view.tab != "processes":
            return (), 0
        is_now = self._reader.info.state == "live" and view.chosen is None and view.end_ns is None
        return self._census.take(None if is_now else about)

    def _read_backlog(self) -> None:
        """Read a part of what was there when the run was opened."""
        if self._gauges.has_backlog:
            self._gauges.read_backlog()
        else:
            self._lanes.read_backlog()

    def _shown(self, view: View) -> tuple[Ruler, Range]:
        """Return the columns of the timeline, and the time that it shows."""
        info = self._reader.info
        run = Range(info.started_ns, max(info.end_ns, info.started_ns + 1))
        if view.span_ns is not None:
            end_ns = info.end_ns if view.end_ns is None else view.end_ns
            shown = Range(max(end_ns - view.span_ns, run.from_ns), end_ns)
            return Ruler.moving(view.span_ns, end_ns, view.columns), shown
        if info.state == "live":
            return Ruler.growing(run.from_ns, run.to_ns, view.columns), run
        return Ruler.filling(run.from_ns, run.to_ns, view.columns), run

    def _about(self, view: View) -> Range:
        """Return the time that everything below the timeline is about."""
        info = self._reader.info
        return view.chosen.within(Range(info.started_ns, info.end_ns)) if view.chosen else self._shown(view)[1]

    def _draw_lanes(self, ruler: Ruler, tallies: Mapping[int, PhaseTally]) -> tuple[Lane, ...]:
        cells = self._lanes.cells(ruler)
        threads = self._lanes.threads(cells.keys() | tallies.keys())
        empty: tuple[tuple[PhaseShare, ...], ...] = ((),) * ruler.count
        return tuple(
            Lane(
                self._lanes.label(thread, is_alone=len(threads) == 1),
                cells.get(thread.id, empty),
                tallies[thread.id].shares() if thread.id in tallies else (),
            )
            for thread in threads
        )

    def _draw_gauges(self, ruler: Ruler, chosen: Range | None) -> tuple[Gauge, ...]:
        strips = self._gauges.strips(ruler, chosen)
        return (*(with_slope(strip, ruler) for strip in strips), self._pace.strip(ruler, chosen))

    def _tallies(self, part: Part) -> Mapping[int, PhaseTally]:
        """Return the phases of each thread."""
        tallies: dict[int, PhaseTally] = {}
        for total in part.totals:
            tallies.setdefault(total.thread, PhaseTally(self._places)).add(total.stack, total.duration_ns)
        return tallies

    def _together(self, tallies: Mapping[int, PhaseTally], about: Range) -> PhaseTally:
        """Return the phases of threads as one."""
        weights = self._samples.weights(about)
        every = PhaseTally(self._places)
        for thread, tally in tallies.items():
            every.update(tally, weights[self._reader.threads[thread].process])
        return every

    def _vitals(self) -> Vitals:
        workers = [row for row in self._reader.processes.values() if row.role == "worker"]
        is_live = self._reader.info.state == "live"
        return Vitals(
            workers=sum(row.ended_ns is None or not is_live for row in workers),
            coverage=covered_share(self._reader, self._lives, EVERYTHING),
            torn_share=self._lives.recorded.torn_share,
            cost_cores=self._gauges.newest(COST_SERIES) if is_live else self._gauges.mean(COST_SERIES),
            steps=self._pace.steps(of_all=not self._has_more),
        )

    def _read_share(self) -> float:
        if self._was_read or not (self._has_more or self.has_backlog):
            return 1.0
        info = self._reader.info
        listed = (self._lives.known_to_ns - info.started_ns) / max(info.end_ns - info.started_ns, 1)
        return min((listed + self._gauges.read_share + self._lanes.read_share) / 3, 0.99)

    def _scope_name(self, view: View) -> str:
        process = self._reader.processes.get(view.scope.process or 0)
        if view.scope.kind is not ScopeKind.PROCESS or process is None:
            return view.scope.kind.value
        return f"{process_title(process.role, process.ordinal)} · pid {process.pid}"


LATELY_S = 10.0
SOONEST_S = 2.0


class OwnCost:
    """The CPU time of the dashboard over the last seconds; reading a run that is opened counts, its imports do not."""

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, spent_s: Callable[[], float] = time.process_time
    ) -> None:
        self._now_s = now_s
        self._spent_s = spent_s
        self._readings = deque([(now_s(), spent_s())])

    def cores(self) -> float | None:
        """Return how much of a core was used lately; None before that can be told."""
        self._readings.append((self._now_s(), self._spent_s()))
        (begun_s, before_s), (now_s, after_s) = self._readings[0], self._readings[-1]
        # One reading older than what counts stays: the time between the others is part of it.
        while len(self._readings) > 2 and self._readings[1][0] <= now_s - LATELY_S:
            self._readings.popleft()
            begun_s, before_s = self._readings[0]
        return (after_s - before_s) / (now_s - begun_s) if now_s - begun_s >= SOONEST_S else None
