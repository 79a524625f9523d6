"""Everything that the dashboard knows of a run.

It is kept up to date by reading only what is new. It belongs to the feed's thread, as its reader
does: it answers a ``View`` with a ``Snapshot``.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence

from profd.daemon.analyze.calltree import Node, call_tree
from profd.daemon.analyze.coverage import COST_SERIES, Lives, covered_share
from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.phases import STARTUP, PhaseIndex
from profd.daemon.analyze.profile import (
    Busy,
    FunctionRow,
    Profile,
    functions_by_stack,
    hot_functions,
    lines_by_stack,
    process_weights,
    user_lines,
    utilization_by_stack,
    weighted,
)
from profd.daemon.analyze.selection import (
    MAIN_THREADS,
    Selection,
    leading_threads,
    led_by,
)
from profd.daemon.analyze.uncertainty import TransitionsSeen, take_transitions
from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.naming import process_title
from profd.daemon.render.sections import SETTLED_S
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import EventRow, StackTotal
from profd.daemon.timerange import TimeRange
from profd.tui.columns import Ruler
from profd.tui.pace import LATELY_NS, Pace
from profd.tui.phaserows import PhaseRows, shown_shares
from profd.tui.processes import ProcessStates
from profd.tui.scrub import marks_of
from profd.tui.series import RunSeries, with_slope
from profd.tui.snapshot import ALONE, PhaseShares, Snapshot, Timeline, Verdict
from profd.tui.view import View, is_near, shown_part

# Transitions between stacks show how exact the shares of a range are. They are read interval by
# interval, over a minute of the range, evenly spread, and less if there are many threads.
_LEAST_LOOKED_AT_NS = 12 * SECOND_NS
# If a range moves or grows, its transitions are read again once it is far from the range that was
# read.
_LEAST_KEPT_NS = 10 * SECOND_NS


class Samples:
    """The samples of one run."""

    def __init__(self, reader: RunReader, lives: Lives, phases: PhaseIndex) -> None:
        self._reader, self._lives, self._phases = reader, lives, phases
        self._functions_of, self._lines_of = (
            functions_by_stack(reader),
            lines_by_stack(reader, phases),
        )
        self._busy: Mapping[int, Busy] = {}
        self._changes: dict[int, TransitionsSeen] = {}
        self._busy_of = self._changes_of = TimeRange(0, 0), frozenset[int]()

    def totals(
        self, asked: TimeRange, threads: Collection[int] | None = None
    ) -> Sequence[StackTotal]:
        """Return what was seen in a range of some threads, or of all, by thread and stack."""
        return self._reader.totals(asked.open_at(self._reader.info.time), threads)

    def of_scope(self, scope: Selection, asked: TimeRange) -> Sequence[StackTotal]:
        return self.totals(asked, scope.threads(self._reader))

    def rows(self, view: View, asked: TimeRange) -> tuple[tuple[FunctionRow, ...], int, str]:
        """Return the functions or the user's lines, their samples, and what is apart from them.

        The lines are those in the loop; if asked, or without a loop, those in the startup.
        """
        if view.tab not in ("lines", "hot"):
            return (), sum(total.samples for total in self.of_scope(view.scope, asked)), ""
        totals, apart, functions_of = self.of_scope(view.scope, asked), "", self._functions_of
        if view.tab == "lines":
            functions_of = self._lines_of
            startup, loop = (
                [one for one in totals if (self._phases.of_stack(one.stack) == STARTUP) is begins]
                for begins in (True, False)
            )
            is_alone = startup and (view.startup or not loop)
            without = "without startup" if startup else ""
            totals, apart = (startup, ALONE) if is_alone else (loop, without)
        changes = self._changes_in(asked, view.scope.threads(self._reader))
        profile = weighted(self._reader, totals, changes, self.weights(asked))
        rows = hot_functions(self._reader, profile, self.busy(view.scope, asked), functions_of)
        return tuple(rows), profile.total_samples, apart

    def busy(self, scope: Selection, asked: TimeRange) -> Mapping[int, Busy]:
        """Return how busy the GPUs are known to have been during a scope's stacks in a range.

        Reading takes long, so while a run grows they are read again only once the range is far from
        the one that was read.
        """
        threads, (before, of_threads) = scope.threads(self._reader), self._busy_of
        is_same = is_near(asked, before) if self._reader.info.is_live else asked == before
        if of_threads != threads or not is_same:
            time = asked.open_at(self._reader.info.time)
            tracks = GpuTracks(self._reader, time)
            self._busy = utilization_by_stack(self._reader, tracks, scope.during(time))
            self._busy_of = asked, threads
        return self._busy

    def profile(self, scope: Selection, asked: TimeRange) -> Profile:
        changes = self._changes_in(asked, scope.threads(self._reader))
        return weighted(self._reader, self.of_scope(scope, asked), changes, self.weights(asked))

    def weights(self, asked: TimeRange) -> Mapping[int, float]:
        """Return by process how much time a second of its recordings in a range stands for."""
        time = asked.open_at(self._reader.info.time)
        return process_weights(self._reader, self._lives, time)

    def _changes_in(self, asked: TimeRange, threads: frozenset[int]) -> dict[int, TransitionsSeen]:
        """Return the transitions in a range by process.

        They are read again if the range is far from that of last time.
        """
        before, of_threads = self._changes_of
        if of_threads == threads and before.length_ns >= _LEAST_KEPT_NS and is_near(asked, before):
            grown, found = asked.length_ns / before.length_ns, {}
            for process, seen in self._changes.items():
                squares = {moment: square * grown for moment, square in seen.squares.items()}
                found[process] = TransitionsSeen(squares, seen.open_ns2 * grown, seen.reads)
            return found
        many = max(len(threads), 1) if asked.length_ns > MINUTE_NS else 1
        looked_at_ns = max(MINUTE_NS // many, _LEAST_LOOKED_AT_NS)
        self._changes = take_transitions(self._reader, Selection(*asked), threads, looked_at_ns)
        self._changes_of = (asked, threads)
        return self._changes


BATCH_RECORDINGS = 4096


class RunModel:
    """What was read of one run so far."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._phases = phases = PhaseIndex(reader)
        self._lives = Lives(reader)
        self._samples = Samples(reader, self._lives, phases)
        self._phase_rows = PhaseRows(reader, phases)
        self._series = RunSeries(reader)
        self._pace = Pace(reader, phases)
        self._columns = (self._series.columns, self._phase_rows.columns, self._pace.columns)
        self._processes = ProcessStates(reader, self._series, self._pace, phases)
        self._events: list[EventRow] = []
        self._last_recording = 0
        # Older recordings than this one are read only when needed.
        self._opened_at = reader.newest_id("recording")
        self._has_more = False
        self._was_read = False

    def catch_up(self) -> bool:
        """Take in what was written since, then a part of the backlog.

        False once there is no more.
        """
        recordings = self._reader.recordings_after(self._last_recording, BATCH_RECORDINGS)
        # After the recordings, so that every stack and thread that their intervals name is known.
        self._reader.refresh()
        self._lives.add(recordings)
        self._phase_rows.add(row for row in recordings if row.id > self._opened_at)
        self._series.catch_up()
        self._events += self._reader.events(after_id=self._events[-1].id if self._events else 0)
        self._pace.catch_up(self._events)
        if recordings:
            self._last_recording = recordings[-1].id
        if len(recordings) < BATCH_RECORDINGS:
            for columns in self._columns:
                columns.read_on()
        self._has_more = len(recordings) == BATCH_RECORDINGS or self.has_backlog
        self._was_read = self._was_read or (self._columns[0].is_drawn and not self._has_more)
        return self._has_more

    @property
    def has_backlog(self) -> bool:
        return any(columns.has_backlog for columns in self._columns)

    def flame(self, view: View) -> Node:
        about, scope = self._about(view), view.scope
        profile, busy = self._samples.profile(scope, about), self._samples.busy(scope, about)
        return call_tree(self._reader, profile, self._phases, busy)

    def snapshot(self, view: View) -> Snapshot:
        """Return the run as it is now, in this view, without what only other tabs show."""
        info = self._reader.info
        samples = self._samples
        rows = tuple(self._reader.processes.values())
        is_live = info.is_live
        run = info.time
        ruler, _ = self._shown(view)
        about = self._about(view)
        chosen = about if view.chosen else None
        functions, counted, apart = samples.rows(view, about)
        of_main = samples.totals(about, self._phase_rows.ids())
        weights = samples.weights(about)
        phase_rows = self._phase_rows.rows(ruler, self._shares_by_process(of_main, weights))
        is_now = is_live and view.chosen is None and view.end_ns is None
        processes, left_out = (
            self._processes.take(None if is_now else about) if view.tab == "processes" else ((), 0)
        )
        strips = (with_slope(strip, ruler) for strip in self._series.strips(ruler, chosen))
        series = (*strips, self._pace.strip(ruler, chosen))
        marks = marks_of(self._events, self._reader.windows())
        return Snapshot(
            info=info,
            view=view,
            read_share=self._read_share(),
            workers=sum(
                row.role == "worker" and (row.ended_ns is None or not is_live) for row in rows
            ),
            coverage=covered_share(self._reader, self._lives.covers, Selection()),
            torn_share=self._lives.recorded.torn_share,
            cost_cores=self._series.last(COST_SERIES, None)
            if is_live and run.length_s >= SETTLED_S
            else self._series.mean(COST_SERIES, None, run),
            steps=self._pace.steps(of_all=not self._has_more),
            verdict=self._verdict(weighted(self._reader, of_main, {}, weights), len(phase_rows)),
            timeline=Timeline(ruler, run, phase_rows, series, marks),
            functions=functions,
            apart=apart,
            per_s=self._pace.sure_per_s(about),
            scope_name=self._name_of(view.scope),
            samples=counted,
            time=about,
            process_rows=rows,
            processes=processes,
            left_out=left_out,
            events=tuple(self._events),
            hang=next((one.text for one in self._reader.hangs() if one.ended_ns is None), ""),
        )

    def _shares_by_process(
        self, totals: Sequence[StackTotal], weights: Mapping[int, float]
    ) -> Mapping[int, PhaseShares]:
        """Return by process the shares of phases in what was seen of its main threads."""
        of_process = defaultdict[int, list[StackTotal]](list)
        for total in totals:
            of_process[self._reader.threads[total.thread].process].append(total)
        return {
            process: shown_shares(weighted(self._reader, seen, {}, weights), self._phases)
            for process, seen in of_process.items()
        }

    def _name_of(self, scope: Selection) -> str:
        """Return a scope in words: its last process, if it names any."""
        others = f"{scope.role}s" if scope.role else "all threads"
        name = "main threads" if scope.main_threads else others
        for process in (self._reader.processes[id] for id in scope.processes or ()):
            name = f"{process_title(process.role, process.ordinal)} · pid {process.pid}"
        return name

    def _verdict(self, profile: Profile, processes: int) -> Verdict | None:
        """Return the largest phase with the line that most of it was called from.

        None without samples.
        """
        shares = shown_shares(profile, self._phases)
        if not shares:
            return None
        phase, share = next(iter(shares.items()))
        line = next((one for one in user_lines(profile, self._phases) if one.phase == phase), None)
        leader = led_by(leading_threads(self._reader, MAIN_THREADS))
        return Verdict(phase, share, line, processes, leader, profile.total_samples)

    def _shown(self, view: View) -> tuple[Ruler, TimeRange]:
        info = self._reader.info
        if view.span_ns is not None:
            end_ns = info.end_ns if view.end_ns is None else view.end_ns
            shown = TimeRange(max(end_ns - view.span_ns, info.started_ns), end_ns)
            ruler = Ruler.moving(view.span_ns, end_ns, view.columns, info.started_ns)
            return ruler, shown
        run = TimeRange(info.started_ns, max(info.end_ns, info.started_ns + 1))
        make = Ruler.growing if info.is_live else Ruler.filling
        return make(run.from_ns, run.to_ns, view.columns), run

    def _about(self, view: View) -> TimeRange:
        """Return the time range of everything below the timeline."""
        info = self._reader.info
        return shown_part(view.chosen, info.time) if view.chosen else self._shown(view)[1]

    def _read_share(self) -> float:
        if self._was_read or not (self._has_more or self.has_backlog):
            return 1.0
        info = self._reader.info
        listed = (self._lives.known_to_ns - info.started_ns) / max(info.time.length_ns, 1)
        shares = [listed, *(columns.read_share for columns in self._columns)]
        return min(statistics.fmean(shares), 0.99)


SOONEST_S = 2.0


class OwnCost:
    """The CPU time of the dashboard over the last seconds.

    Reading a run that is opened counts, its imports do not.
    """

    def __init__(self, now_s: Callable[[], float], spent_s: Callable[[], float]) -> None:
        self._now_s, self._spent_s = now_s, spent_s
        self._readings = deque([(now_s(), spent_s())])

    def cores(self) -> float | None:
        """Return how much of a core was used lately; None before that is known."""
        self._readings.append((self._now_s(), self._spent_s()))
        # One reading older than the period stays, because the time since it is part of the period.
        while (
            len(self._readings) > 2
            and self._readings[1][0] <= self._readings[-1][0] - LATELY_NS / SECOND_NS
        ):
            self._readings.popleft()
        (begun_s, before_s), (now_s, after_s) = self._readings[0], self._readings[-1]
        return (after_s - before_s) / (now_s - begun_s) if now_s - begun_s >= SOONEST_S else None
