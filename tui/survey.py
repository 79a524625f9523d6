"""Everything that the dashboard knows of a run, kept up to date by reading what is new and nothing twice.

Belongs to the feed's thread, as its reader does. Knows nothing of screens: it answers a ``View`` with a ``Snapshot``.
"""

from __future__ import annotations

from collections import defaultdict

from profd.daemon.analyze.lives import Lives
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import EventRow, RecordingRow
from profd.tui.bins import Ruler
from profd.tui.census import Census
from profd.tui.coverage import Coverage
from profd.tui.gauges import Gauges
from profd.tui.lanes import Lanes
from profd.tui.pace import Pace
from profd.tui.samples import Samples
from profd.tui.snapshot import Snapshot, Timeline, Vitals
from profd.tui.tallies import Places
from profd.tui.view import RECENT_NS, ScopeKind, View, Window

BATCH_RECORDINGS = 128


class Survey:
    """What was read of one run so far."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._places = Places(PhaseIndex(reader))
        self._lives = Lives(reader)
        self._samples = Samples(reader, self._lives)
        self._lanes = Lanes(reader, self._places, self._lives)
        self._gauges = Gauges(reader)
        self._pace = Pace(reader)
        self._coverage = Coverage(reader)
        self._census = Census(reader, self._gauges, self._places)
        self._events: list[EventRow] = []
        self._last_recording = 0
        self._has_more = False

    def catch_up(self) -> bool:
        """Take in a batch of what was written since; False when that was all there is."""
        recordings = self._reader.recordings_after(self._last_recording, BATCH_RECORDINGS)
        # After the recordings, so that every stack and thread that their intervals name is known.
        self._reader.refresh()
        self._read_intervals(recordings)
        self._coverage.add(recordings)
        self._lives.add(recordings)
        self._gauges.catch_up()
        self._pace.catch_up()
        self._events += self._reader.events(self._events[-1].id if self._events else 0)
        if recordings:
            self._last_recording = recordings[-1].id
        self._has_more = len(recordings) == BATCH_RECORDINGS
        return self._has_more

    def snapshot(self, view: View) -> Snapshot:
        """Return the run as it is now, in this view."""
        info = self._reader.info
        ruler = self._ruler(view)
        lanes = self._lanes if view.window is Window.WHOLE else self._recent_lanes(ruler)
        functions, samples = self._samples.hot_functions(view)
        processes, left_out = self._census.take(self._samples)
        drawn = lanes.draw(ruler)
        return Snapshot(
            info=info,
            view=view,
            read_share=self._read_share(),
            vitals=self._vitals(),
            verdict=lanes.tally().verdict(self._reader, len(drawn)),
            timeline=Timeline(ruler, info.end_ns, drawn, self._gauges.strips(view.window, ruler)),
            functions=tuple(functions),
            scope_name=self._scope_name(view),
            samples=samples,
            from_ns=info.started_ns if view.window is Window.WHOLE else max(info.started_ns, info.end_ns - RECENT_NS),
            to_ns=info.end_ns,
            processes=processes,
            left_out=left_out,
            events=tuple(self._events),
        )

    def _read_intervals(self, recordings: list[RecordingRow]) -> None:
        """Read the intervals of recordings, those of one process at once: between its recordings it has none."""
        by_process: defaultdict[int, list[RecordingRow]] = defaultdict(list)
        for recording in recordings:
            by_process[recording.process].append(recording)
        for process, rows in by_process.items():
            threads = [thread.id for thread in self._reader.threads.values() if thread.process == process]
            from_ns, to_ns = min(row.start_ns for row in rows), max(row.end_ns for row in rows)
            intervals = list(self._reader.intervals(from_ns, to_ns, threads))
            self._samples.add(intervals)
            self._lanes.add(intervals)

    def _ruler(self, view: View) -> Ruler:
        info = self._reader.info
        if view.window is Window.RECENT:
            return Ruler.moving(RECENT_NS, info.end_ns, view.columns)
        if info.state == "live":
            return Ruler.growing(info.started_ns, info.end_ns, view.columns)
        return Ruler.filling(info.started_ns, info.end_ns, view.columns)

    def _recent_lanes(self, ruler: Ruler) -> Lanes:
        lanes = Lanes(self._reader, self._places, self._lives, ruler)
        lanes.add(self._samples.recent())
        return lanes

    def _vitals(self) -> Vitals:
        workers = [row for row in self._reader.processes.values() if row.role == "worker"]
        is_live = self._reader.info.state == "live"
        return Vitals(
            workers=sum(row.ended_ns is None or not is_live for row in workers),
            samples=self._coverage.samples,
            coverage=self._coverage.share(),
            torn_share=self._coverage.torn_share(),
            cost_cores=self._gauges.newest("profd_cpu_cores") if is_live else self._gauges.mean("profd_cpu_cores"),
            steps=self._pace.steps(),
        )

    def _read_share(self) -> float:
        info = self._reader.info
        if not self._has_more:
            return 1.0
        return min(max(self._coverage.read_to_ns() - info.started_ns, 0) / max(info.end_ns - info.started_ns, 1), 0.99)

    def _scope_name(self, view: View) -> str:
        process = self._reader.processes.get(view.scope.process or 0)
        if view.scope.kind is not ScopeKind.PROCESS or process is None:
            return view.scope.kind.value
        name = process.role if process.ordinal is None else f"{process.role} {process.ordinal}"
        return f"{name} · pid {process.pid}"


class Follower:
    """The survey of a run, looked at again and again: does as little as can be while nothing is written."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._survey = Survey(reader)
        self._shown: tuple[View, str] | None = None
        self._has_more = True
        self._is_stale = True

    def look(self) -> bool:
        """Take in what is new; True where there is more to be read at once."""
        if self._reader.changed() or self._has_more:
            self._has_more = self._survey.catch_up()
            self._is_stale = True
        elif self._reader.info.state == "live":
            # A recorder that was killed writes nothing any more: its absence has to be looked for.
            self._reader.refresh()
        return self._has_more

    def snapshot(self, view: View) -> Snapshot | None:
        """Return the run as it is now, None where that is what the last snapshot said."""
        asked = (view, self._reader.info.state)
        if not self._is_stale and asked == self._shown:
            return None
        self._is_stale, self._shown = False, asked
        return self._survey.snapshot(view)
