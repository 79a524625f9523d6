"""The application: themes, the effect of leaving, and which screen is open."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.driver import Driver
from textual.message import Message
from textual.screen import Screen

from profd.daemon.errors import ProfdError, is_out_of_memory
from profd.daemon.launch.terminal import has_shell
from profd.daemon.store.bound import MemoryBound, bounded_memory
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo
from profd.tui import actions
from profd.tui.actions import ActionFailed
from profd.tui.colors import DARK, LIGHT, suited_theme
from profd.tui.dashboard import Dashboard
from profd.tui.dialogs import (
    STOP,
    FailureScreen,
    HelpScreen,
    Leaving,
    LeavingScreen,
)
from profd.tui.driver import BackgroundTold, TerminalDriver
from profd.tui.feed import Feed, FeedFailed
from profd.tui.terminal import Terminal


class ProfdApp(App[Leaving]):
    """The dashboard of one run file."""

    CSS_PATH = "dashboard.tcss"
    TITLE = "profd"
    BINDINGS = [
        Binding("question_mark,f1", "help", "help", show=False),
        Binding("ctrl+z", "suspend_process", "shell", show=False),
        Binding("q", "quit", "leave"),
        Binding("ctrl+c", "quit('ctrl+c')", show=False),
    ]

    def __init__(
        self,
        run_file: Path,
        *,
        keys_fd: int | None = None,
        may_end: bool = True,
        bound: MemoryBound | None = None,
    ) -> None:
        # Without color there are no shades of gray either: the terminal's own two colors are used.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.theme = suited_theme()
        self.feed = Feed(run_file, self._post_to_screen, bound=bound)
        self.has_run_out = False
        """Whether it was ended because it may take no more memory."""
        self._run_file, self._may_end = run_file, may_end
        self._terminal = Terminal(keys_fd) if keys_fd is not None else None

    def get_driver_class(self) -> type[Driver]:
        return TerminalDriver

    def get_default_screen(self) -> Screen[None]:
        return Dashboard(self._run_file, self.feed, self._terminal)

    @on(BackgroundTold)
    def _suit_background(self, message: BackgroundTold) -> None:
        self.theme = (LIGHT if message.is_light else DARK).name

    def on_mount(self) -> None:
        self.run_worker(self.feed.run, thread=True, group="feed", name="feed")

    def on_unmount(self) -> None:
        """Let the reading thread end, because the interpreter waits for it."""
        self.feed.stop()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield SystemCommand("Theme", "Change the colors", self.action_change_theme)

    async def action_quit(self, by: str = "q") -> None:
        dashboard = self.screen_stack[0]
        assert isinstance(dashboard, Dashboard)  # the default screen
        info = dashboard.info

        def leave(answer: str | None) -> None:
            if answer == STOP:
                dashboard.stop_script()
            elif answer == Leaving.KEEP.value or (answer == Leaving.END.value and self._may_end):
                self.exit(Leaving(answer))
            elif answer == Leaving.END.value and info is not None:
                # The caller of this dashboard cannot end the recording, but its session can be
                # asked.
                self.run_worker(lambda: self._end(info), thread=True, group="action")

        if info is None or not info.is_live or isinstance(self.screen, FailureScreen):
            self.exit(Leaving.END)
        elif not isinstance(self.screen, LeavingScreen):
            screen = LeavingScreen(dashboard.stopping, by_interrupt=by == "ctrl+c")
            self.push_screen(screen, leave)

    def _end(self, info: RunInfo) -> None:
        try:
            actions.stop(info)
        except ProfdError as error:
            self._post_to_screen(ActionFailed(error, "Not stopped"))
        else:
            self.call_from_thread(self.exit, Leaving.END)

    def action_suspend_process(self) -> None:
        """Stop, and leave the terminal to the shell until it says ``fg``.

        Script and recording go on.
        """
        if has_shell():
            super().action_suspend_process()
        else:
            self.notify(
                "there is no shell to come back from: q leaves", severity="warning", markup=False
            )

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    @on(FeedFailed)
    def _show_failure(self, message: FeedFailed) -> None:
        self.push_screen(FailureScreen(message.error))

    def _handle_exception(self, error: Exception) -> None:
        """End in one line if there is no memory left, also in a worker.

        For all other errors Textual shows a traceback.
        """
        if is_out_of_memory(getattr(error, "error", error)):
            self.has_run_out = True
            self.exit()
        else:
            super()._handle_exception(error)

    def _post_to_screen(self, message: Message) -> None:
        """Pass on what the feed found: snapshots to the dashboard, failures to the app.

        The dashboard gets snapshots even if another screen covers it.
        """
        (self if isinstance(message, FeedFailed) else self.screen_stack[0]).post_message(message)


def run_dashboard(run_file: Path, *, keys_fd: int | None = None, may_end: bool = True) -> Leaving:
    """Show a run until the person leaves, and return what happens to its recording.

    ``keys_fd`` is profd's end of the pseudo-terminal of a launched script. ``may_end`` says whether
    the caller ends the recording if END is returned: if not, the session is asked to end it. Raises
    RunUnreadable if the file cannot be read at all, or takes more memory than its size accounts
    for; later errors are shown on the screen.
    """
    RunReader(run_file).close()
    with bounded_memory(run_file) as bound:
        app = ProfdApp(run_file, keys_fd=keys_fd, may_end=may_end, bound=bound)
        leaving = app.run()
        if app.has_run_out:
            raise MemoryError
        return leaving or Leaving.END
