"""The feed: a thread that reads the run and posts what it found.

So the event loop never waits for the disk. Messages are named by what has happened. While the run
is live the feed asks its session for fresh data; if the session cannot be reached, only freshness
is lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace
from textual.message import Message

from profd.daemon.analyze.calltree import Node
from profd.daemon.analyze.operators import by_name
from profd.daemon.analyze.torchtraces import of_last_request
from profd.daemon.analyze.windows import IdleGpu, idle_gpus
from profd.daemon.clock import rest_s
from profd.daemon.errors import ProfdError, SessionFailed
from profd.daemon.session.analyst import command
from profd.daemon.session.control import ControlClient
from profd.daemon.store.bound import MemoryBound
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import OperatorTotals
from profd.daemon.store.rows import ProcessRow, RunInfo, WindowRow
from profd.tui.findings import Analysis, Findings
from profd.tui.runmodel import OwnCost, RunModel
from profd.tui.snapshot import Snapshot
from profd.tui.terminal import Picture, Playback
from profd.tui.view import OutputView, View

REFRESH_S = 0.5
TYPING_S = 0.1
RESTS_AFTER_S, RESTS = 10.0, 5
"""Once nobody has chosen anything else for so long, a run is looked at so many times as seldom.

If that is not seldom enough, it rests for up to as long, so that looks take ``RESTING_SHARE``.
"""
RESTING_SHARE = 0.008
# A session that cannot be reached may be starting, or ending: it is asked again, but not at every
# look.
LOOKS_TO_RETRY = 10
_SHARE = 0.1
"""How much of the time answers of single tabs take at most while a run grows."""

Connect = Callable[[Path], ControlClient]


class Watch:
    """Keeps a session's data fresh; if the session cannot be reached, only freshness is lost."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: ControlClient | None = None
        self._looks_to_retry = 0

    def keep(self, info: RunInfo) -> None:
        if not info.is_live or not info.control_socket:
            self.close()
        elif self._connection is not None or self._looks_to_retry > 0:
            self._looks_to_retry = max(self._looks_to_retry - 1, 0)
        else:
            self._looks_to_retry = LOOKS_TO_RETRY
            try:
                self._connection = self._connect(Path(info.control_socket))
                self._connection.watch()
            except SessionFailed:
                self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass
class SnapshotTaken(Message):
    """The run was looked at, and something is new."""

    snapshot: Snapshot


@dataclass
class OutputDrawn(Message):
    """The script wrote something, or its output has another size."""

    picture: Picture


class WindowOperators(msgspec.Struct, frozen=True):
    """A torch.profiler window of a process.

    ``operators`` are summed over all shapes; ``steps`` is the number of whole steps.
    """

    window: WindowRow
    process: ProcessRow
    steps: int
    operators: tuple[OperatorTotals, ...]
    gpus: tuple[IdleGpu, ...]


@dataclass
class FlameGrown(Message):
    """The stacks of the current view were added up."""

    tree: Node


@dataclass
class OperatorsRead(Message):
    """The operators of a window were read; None if no window was taken."""

    shown: WindowOperators | None


@dataclass
class FeedFailed(Message):
    """The run cannot be read any further; the feed has ended."""

    error: ProfdError


class TabContent:
    """What single tabs show beside the snapshot, made only for the open tab.

    A tab is answered at once when it is opened or its view changes. While a run grows, it is
    answered again so seldom that this takes a small part of the time, however much there is to add
    up.
    """

    def __init__(self, reader: RunReader, model: RunModel) -> None:
        self._reader, self._model = reader, model
        self._answered: View | None = None
        self._rests_until_s = 0.0
        self._is_stale = True

    def take(self, view: View, *, is_new: bool) -> Message | None:
        """Return what the open tab shows.

        None if the tab shows it already or has no content of its own, or if it is too early.
        ``is_new`` says that something was written since the last call.
        """
        self._is_stale = self._is_stale or is_new
        asked = replace(view, columns=0, startup=False)
        begun_s = time.monotonic()
        is_early = asked == self._answered and (not self._is_stale or begun_s < self._rests_until_s)
        if view.tab not in ("flame", "torch") or is_early:
            return None
        message = (
            FlameGrown(self._model.flame(view)) if view.tab == "flame" else self._operators(view)
        )
        self._answered, self._is_stale = asked, False
        now_s = time.monotonic()
        self._rests_until_s = now_s + rest_s(now_s - begun_s, _SHARE)
        return message

    def _operators(self, view: View) -> OperatorsRead:
        windows = self._reader.taken_windows()
        if (chosen := view.chosen) is not None:
            windows = [one for one in windows if one.time.overlaps(chosen)] or windows
        # Of the last request; if several ranks took it, that of the first.
        window = next(iter(of_last_request(self._reader, windows)), None)
        if window is None:
            return OperatorsRead(None)
        operators = by_name(self._reader.operators(window.id))
        steps = len(self._reader.window_steps(window.id))
        process = self._reader.processes[window.process]
        gpus = idle_gpus(self._reader, window)
        return OperatorsRead(WindowOperators(window, process, steps, tuple(operators), gpus))


class _Reading:
    """How far a run was read.

    ``is_stale`` says that something was read since the run was shown, ``is_behind`` that there is
    more to read.
    """

    def __init__(self, reader: RunReader, model: RunModel, bound: MemoryBound | None) -> None:
        self._reader, self._model, self._bound = reader, model, bound
        self._version = -1
        self.is_behind = self.is_stale = True

    def read_on(self) -> None:
        # As little as can be is done while nothing is written.
        before, self._version = self._version, self._reader.version()
        has_grown = self._version != before
        if has_grown and self._bound is not None:
            self._bound.renew()
        if has_grown or self.is_behind or self._model.has_backlog:
            self.is_behind, self.is_stale = self._model.catch_up(), True
        elif self._reader.info.is_live:
            # A recorder that was killed writes nothing any more: its absence has to be looked
            # for.
            self._reader.refresh()


class Feed:
    """Follows one run file.

    ``run`` belongs to the thread; everything else may be called from any thread.
    """

    def __init__(
        self,
        path: Path,
        post: Callable[[Message], object],
        connect: Connect = ControlClient,
        bound: MemoryBound | None = None,
    ) -> None:
        self._path, self._post, self._connect, self._bound = path, post, connect, bound
        self._analysis = Analysis(command(path), bound)
        # The process that looks for findings is part of the dashboard's cost.
        self._own_cost = OwnCost(
            time.monotonic, lambda: time.process_time() + self._analysis.spent_s()
        )
        self.view, self.output_view = View(), OutputView()
        self._is_paused = self._is_stopped = False
        self._wake, self._woken_s = threading.Event(), time.monotonic()
        self._spent_s = 0.0

    def look(self, view: View) -> None:
        self.view = view
        self._wake_up()

    def look_at_output(self, view: OutputView) -> None:
        self.output_view = view
        self._wake_up()

    def pause(self, *, is_paused: bool) -> None:
        self._is_paused = is_paused
        self._wake_up()

    def stop(self) -> None:
        self._is_stopped = True
        self._wake_up()

    def _wake_up(self) -> None:
        self._woken_s = time.monotonic()
        self._wake.set()

    def run(self) -> None:
        try:
            with (
                RunReader(self._path) as reader,
                contextlib.closing(Watch(self._connect)) as watch,
                contextlib.closing(self._analysis),
            ):
                self._follow(reader, watch)
        except ProfdError as error:
            self._post(FeedFailed(error))

    def _follow(self, reader: RunReader, watch: Watch) -> None:
        model, playback = RunModel(reader), Playback(reader)
        findings = Findings(reader, self._analysis)
        tabs = TabContent(reader, model)
        reading = _Reading(reader, model, self._bound)
        shown: tuple[View, str] | None = None
        shown_at_s = 0.0
        while not self._is_stopped:
            self._wake.clear()
            watch.keep(reader.info)
            reading.read_on()
            # Not before something is shown.
            if not reading.is_behind and shown is not None and findings.renew():
                reading.is_stale = True
            # A run that is not read to its end is shown now and then, and at once where another
            # view was asked for.
            view = self.view
            is_due = shown is None or view != shown[0] or time.monotonic() - shown_at_s >= REFRESH_S
            if not self._is_paused and (not reading.is_behind or is_due):
                shown_at_s = time.monotonic()
                asked = (view, reader.info.state)
                is_new = reading.is_stale or asked != shown
                if is_new:
                    reading.is_stale, shown = False, asked
                    self._post(SnapshotTaken(self._snapshot(model, findings, view)))
                if (content := tabs.take(view, is_new=is_new)) is not None:
                    self._post(content)
                self._draw_output(playback)
                # to draw it the event loop needs Python's lock, for which reading on would compete
                if reading.is_behind:
                    self._wake.wait(0.05)
            if not reading.is_behind:
                self._wake.wait(self._pause_s())

    def _pause_s(self) -> float:
        """Return how long a run is left alone that is read to its end."""
        before_s, self._spent_s = self._spent_s, time.process_time()
        if self.output_view.is_typing:
            return TYPING_S
        if time.monotonic() - self._woken_s < RESTS_AFTER_S:
            return REFRESH_S
        rest = rest_s(self._spent_s - before_s, RESTING_SHARE)
        return min(max(rest, RESTS * REFRESH_S), RESTS_AFTER_S)

    def _snapshot(self, model: RunModel, findings: Findings, view: View) -> Snapshot:
        return replace(
            model.snapshot(view),
            findings=findings.findings,
            is_diagnosed=findings.has_looked,
            is_undiagnosable=findings.has_failed,
            view_cores=self._own_cost.cores(),
        )

    def _draw_output(self, playback: Playback) -> None:
        if (picture := playback.play(self.output_view)) is not None:
            self._post(OutputDrawn(picture))
