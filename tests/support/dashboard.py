"""Opens the dashboard without a terminal, and waits in it by message and by state: never for a
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from unittest import mock

from textual.events import Key
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.message import Message
from textual.message_pump import MessagePump
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.records import FindingsTaken
from profd.tui import feed
from profd.tui.app import ProfdApp
from profd.tui.dashboard import Dashboard
from profd.tui.dialogs import FailureScreen, Leaving
from profd.tui.feed import SnapshotTaken
from profd.tui.findings import Analysis
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.header import Header
from support import synthetic
from support.findingruns import look
from support.synthetic import LiveRun
from support.waiting import DEADLINE_S

SIZE = (120, 36)
REFRESH_S = 0.01
"""How often the feed looks at the run file: tests write to it and wait for what the dashboard makes
of that.
"""

Kind = TypeVar("Kind", bound=Message)
Shown = TypeVar("Shown", bound=Widget)


class AnalysisInProcess(Analysis):
    """Looks for findings in the thread that asks it: the product's own process would take half a
    second to start.
    """

    def poll(self) -> FindingsTaken:
        return look(Path(self._words[-1]))


class SettlingPilot(Pilot[Leaving]):
    """A pilot that waits until nothing is left to be done, where Textual's waits for 20 ms in which
    little is done.
    """

    async def pause(self, delay: float | None = None) -> None:
        """Wait until all messages were acted on and the screen is drawn."""
        assert delay is None, "nothing is waited for by time"
        await asyncio.wait_for(self._settle(), DEADLINE_S)

    async def press(self, *keys: str) -> None:
        """Press keys, each when the one before it was acted on."""
        for key in keys:
            self.app.post_message(_key_event(key).set_sender(self.app))
            await self.pause()

    async def _settle(self) -> None:
        while self.app.is_running and not self.app._exception_event.is_set():
            if any(_is_busy(pump) for pump in self._pumps()) or self.app._batch_count:
                await asyncio.sleep(0)
            elif self.app._resize_event is not None:
                self.app._check_resize()
            elif _is_to_be_drawn(self.app.screen):
                self.app.screen._on_timer_update()
            else:
                return

    def _pumps(self) -> Iterator[MessagePump]:
        yield self.app
        for screen in self.app.screen_stack:
            yield from screen.walk_children(with_self=True)


def _key_event(key: str) -> Key:
    """Return the event of a key, as Textual's own pilot makes it."""
    name = _character_to_key(key) if len(key) == 1 and not key.isalnum() else key
    try:
        character = unicodedata.lookup(_get_unicode_name_from_key(REPLACED_KEYS.get(name, name)))
    except KeyError:
        return Key(name, name if len(name) == 1 else None)
    return Key(name, character)


def _is_busy(pump: MessagePump) -> bool:
    """Say whether a message waits for this object, or is acted on: else it waits for one."""
    is_waiting = bool(pump._message_queue.ready_event._waiters) and pump._message_queue.empty()
    return not pump._closing and (not is_waiting or bool(pump._next_callbacks))


def _is_to_be_drawn(screen: Screen[object]) -> bool:
    """Say whether Textual's timer, 60 times a second, would find something to do."""
    return bool(
        screen._layout_required
        or screen._scroll_required
        or screen._repaint_required
        or screen._recompose_required
        or screen._dirty_widgets
        or screen._callbacks
    )


class OpenDashboard:
    """An open dashboard, and all messages that have passed in it."""

    def __init__(self, app: ProfdApp) -> None:
        self.app = app
        self.pilot = SettlingPilot(app)
        self._messages: list[Message] = []
        self._ids: set[int] = set()
        self._passed = asyncio.Event()
        self._seen = 0

    def take(self, message: Message) -> None:
        """Take note of a message, once: it may be passed on from one object to the next."""
        if id(message) not in self._ids:
            self._ids.add(id(message))
            self._messages.append(message)
        self._passed.set()

    async def settle(self) -> None:
        """Wait until all is acted on, and what is looked at now is shown."""
        await self.pilot.pause()
        while not self._is_answered():
            await self._pass_one()
            await self.pilot.pause()

    async def until(
        self, kind: type[Kind], accept: Callable[[Kind], bool] = lambda message: True
    ) -> Kind:
        """Wait for a message that was not waited for yet, and until it was acted on."""
        while True:
            while self._seen < len(self._messages):
                message = self._messages[self._seen]
                self._seen += 1
                if isinstance(message, kind) and accept(message):
                    await self.settle()
                    return message
            await self._pass_one()

    async def snapshot(
        self, accept: Callable[[Snapshot], bool] = lambda snapshot: True
    ) -> Snapshot:
        return (await self.until(SnapshotTaken, lambda message: accept(message.snapshot))).snapshot

    async def press(self, *keys: str) -> None:
        """Press keys, each when all that the one before it did is shown."""
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size, and wait until that was acted on."""
        await self.pilot.resize_terminal(columns, lines)
        await self.settle()

    async def click(self, kind: type[Widget], offset: tuple[int, int]) -> None:
        """Click on a widget, and wait until that was acted on."""
        await self.pilot.click(self.widget(kind), offset=offset)
        await self.settle()

    async def _pass_one(self) -> None:
        self._passed.clear()
        await asyncio.wait_for(self._passed.wait(), DEADLINE_S)

    def _is_answered(self) -> bool:
        """Say whether the feed has nothing to answer: else a snapshot comes."""
        if (
            not self.app.is_running
            or self.app.feed._is_paused
            or isinstance(self.top(), FailureScreen)
        ):
            return True
        shown = self.widget(Header).snapshot
        return shown is not None and shown.view == self.app.feed.view

    @property
    def dashboard(self) -> Dashboard:
        """The dashboard's screen, whatever lies over it."""
        screen = self.app.screen_stack[0]
        assert isinstance(screen, Dashboard)
        return screen

    def top(self) -> Screen[object]:
        """Return the screen that lies over all others."""
        return self.app.screen

    def widget(self, kind: type[Shown]) -> Shown:
        """Return the widget of a kind, and none of a kind that is made from it."""
        return next(one for one in self.dashboard.query(kind) if type(one) is kind)

    def text(self, kind: type[Widget]) -> str:
        widget = self.widget(kind)
        return "\n".join(widget.render_line(y).text for y in range(widget.size.height))

    async def until_text(self, kind: type[Widget], text: str) -> None:
        while text not in self.text(kind):
            await self.until(Message)

    def notices(self) -> list[str]:
        """Return what was said at the edge of the screen."""
        return [notice.message for notice in self.app._notifications]

    async def until_notice(self, text: str) -> None:
        """Wait until something was said."""
        while not any(text in notice for notice in self.notices()):
            await self.until(Message)


def train_backward(run: LiveRun, seconds: int) -> None:
    """Write more of a run, in which the main thread does nothing but its backward pass."""
    for _ in range(seconds):
        start_ns = run.started_ns + run.seconds * SECOND_NS
        thread = (synthetic.MAIN_TID, "MainThread", True, ((synthetic.BACKWARD, 1000),))
        assert run.writer.put(synthetic.recording(synthetic.MAIN, start_ns, (thread,)))
        run.seconds += 1


@contextlib.asynccontextmanager
async def open_dashboard(
    run_file: Path,
    *,
    size: tuple[int, int] = SIZE,
    keys_fd: int | None = None,
    may_end: bool = True,
) -> AsyncIterator[OpenDashboard]:
    """Open the dashboard on a run, and wait until all of it is shown, what was found included."""
    with (
        mock.patch.object(feed, "Analysis", AnalysisInProcess),
        mock.patch.object(feed, "REFRESH_S", REFRESH_S),
    ):
        app = ProfdApp(run_file, keys_fd=keys_fd, may_end=may_end)
        app.animation_level = "none"
        opened = OpenDashboard(app)
        async with app.run_test(size=size, notifications=True, message_hook=opened.take):
            await opened.snapshot(
                lambda snapshot: (
                    snapshot.read_share == 1
                    and (snapshot.is_diagnosed or snapshot.info.state == "live")
                )
            )
            yield opened
