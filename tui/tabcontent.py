"""What single tabs show beside the snapshot: made for the tab that is open alone, and as often as that is cheap.

Belongs to the feed's thread. A tab is answered at once when it is opened or looks at something else; while a run grows
it is answered anew so seldom that this takes a small part of the time, however much there is to add up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import msgspec
from textual.message import Message

from profd.daemon.analyze.operators import by_name
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import OperatorTotals
from profd.daemon.store.rows import ProcessRow, WindowRow
from profd.tui.flametree import Node, grow
from profd.tui.runmodel import RunModel
from profd.tui.view import View

_REST = 9
"""For how many times what an answer took the next one is put off."""


class WindowOperators(msgspec.Struct, frozen=True):
    """A torch.profiler window of a process; the operators without regard to shapes, ``steps`` whole steps."""

    window: WindowRow
    process: ProcessRow
    steps: int
    operators: tuple[OperatorTotals, ...]


@dataclass
class FlameGrown(Message):
    """The stacks of what is looked at were added up."""

    tree: Node


@dataclass
class OperatorsRead(Message):
    """The operators of a window were read; None where no window was taken."""

    shown: WindowOperators | None


class TabContent:
    """Answers what the open tab asks for."""

    def __init__(self, reader: RunReader, model: RunModel, now_s: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._model = model
        self._now_s = now_s
        self._answered: Hashable = None
        self._rests_until_s = 0.0
        self._is_stale = True

    def take(self, view: View, *, is_new: bool) -> Message | None:
        """Return what the open tab shows; None where it shows that already, nothing of its own, or it is too early.

        ``is_new`` says that something was written since the last call.
        """
        self._is_stale = self._is_stale or is_new
        asked = (view.tab, view.scope, view.span_ns, view.end_ns, view.chosen)
        begun_s = self._now_s()
        is_early = asked == self._answered and (not self._is_stale or begun_s < self._rests_until_s)
        if view.tab not in ("flame", "torch") or is_early:
            return None
        if view.tab == "flame":
            profile, busy = self._model.profile(view), self._model.busy(view)
            message: Message = FlameGrown(grow(self._reader, profile, self._model.phase_of, busy))
        else:
            message = self._operators(view)
        self._answered, self._is_stale = asked, False
        self._rests_until_s = self._now_s() + _REST * (self._now_s() - begun_s)
        return message

    def _operators(self, view: View) -> OperatorsRead:
        windows = [window for window in self._reader.windows() if not window.error]
        chosen = view.chosen
        if chosen is not None:
            inside = [one for one in windows if one.start_ns < chosen.to_ns and one.end_ns > chosen.from_ns]
            windows = inside or windows
        # The last one; of several ranks the first that was written.
        window = next((one for one in windows if one.asked_ns == windows[-1].asked_ns), None)
        if window is None:
            return OperatorsRead(None)
        operators = by_name(self._reader.operators(window.id))
        steps = len(self._reader.window_steps(window.id))
        return OperatorsRead(WindowOperators(window, self._reader.processes[window.process], steps, tuple(operators)))
