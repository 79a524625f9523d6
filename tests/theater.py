"""Runs the dashboard without a terminal, on a stage that tests can wait on: by message, and never by time alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import synthetic
from synthetic import LiveRun
from textual.message import Message
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from profd.daemon.clock import SECOND_NS
from profd.tui.app import ProfdApp
from profd.tui.leaving import Leaving
from profd.tui.reading.feed import SnapshotTaken
from profd.tui.screens.dashboard import Dashboard
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.verdict import VerdictLine

DEADLINE_S = 20.0
SIZE = (120, 36)

Kind = TypeVar("Kind", bound=Message)
Shown = TypeVar("Shown", bound=Widget)


class Theater:
    """An open dashboard, and all messages that have passed in it."""

    def __init__(self, app: ProfdApp) -> None:
        self.app = app
        self.pilot: Pilot[Leaving]
        self._messages: list[Message] = []
        self._passed = asyncio.Event()
        self._seen = 0

    def take(self, message: Message) -> None:
        """Take note of a message."""
        self._messages.append(message)
        self._passed.set()

    async def until(self, kind: type[Kind], accept: Callable[[Kind], bool] = lambda message: True) -> Kind:
        """Wait for a message that was not waited for yet, and until it was acted on."""
        while True:
            while self._seen < len(self._messages):
                message = self._messages[self._seen]
                self._seen += 1
                if isinstance(message, kind) and accept(message):
                    await self.pilot.pause()
                    return message
            self._passed.clear()
            await asyncio.wait_for(self._passed.wait(), DEADLINE_S)

    async def snapshot(self, accept: Callable[[Snapshot], bool] = lambda snapshot: True) -> Snapshot:
        """Wait for a snapshot."""
        return (await self.until(SnapshotTaken, lambda message: accept(message.snapshot))).snapshot

    async def press(self, *keys: str) -> None:
        """Press keys, and wait until they were acted on."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until_still(self) -> None:
        """Wait until no finding can come and move what lies below it."""
        verdict = self.widget(VerdictLine)
        while (
            verdict.snapshot is None
            or not verdict.snapshot.is_diagnosed
            or verdict.styles.height is None
            or verdict.size.height != verdict.styles.height.cells
        ):
            await self.until(Message)

    async def click(
        self, kind: type[Widget], offset: tuple[int, int], has_acted: Callable[[], bool] = lambda: True
    ) -> None:
        """Click on a widget, and wait until that was acted on."""
        await self.until_still()
        await self.pilot.click(kind, offset=offset)
        while not has_acted():
            await self.until(Message)

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
        """Return the only widget of a kind."""
        return self.dashboard.query_one(kind)

    def text(self, kind: type[Widget]) -> str:
        """Return what a widget shows."""
        widget = self.widget(kind)
        return "\n".join(widget.render_line(y).text for y in range(widget.size.height))

    async def until_text(self, kind: type[Widget], text: str) -> None:
        """Wait until a widget shows a text."""
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
async def play(
    run_file: Path, *, size: tuple[int, int] = SIZE, pty_fd: int | None = None, may_end: bool = True
) -> AsyncIterator[Theater]:
    """Open the dashboard on a run, and wait until all of it is shown."""
    app = ProfdApp(run_file, pty_fd=pty_fd, may_end=may_end)
    theater = Theater(app)
    async with app.run_test(size=size, notifications=True, message_hook=theater.take) as pilot:
        theater.pilot = pilot
        await theater.snapshot(lambda snapshot: snapshot.read_share == 1)
        yield theater
