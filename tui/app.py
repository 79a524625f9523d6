"""The application: themes, the effect of leaving, and which screen is open."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
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
    STOPPING,
    Choice,
    ChoiceScreen,
    FailureScreen,
    HelpScreen,
    Leaving,
    LeavingScreen,
)
from profd.tui.feed import Feed, FeedFailed
from profd.tui.keys import COMMANDS
from profd.tui.terminal import Terminal

_DRAWS_ON = 2  # stderr, as in Textual


class _Driver(LinuxDriver):
    """Asks the terminal that it draws on for its size.

    Textual's driver asks stdout, which may be a file.
    """

    def _get_terminal_size(self) -> tuple[int, int]:
        return os.get_terminal_size(_DRAWS_ON)


class ProfdApp(App[Leaving]):
    """The dashboard of one run file."""

    CSS_PATH = "dashboard.tcss"
    TITLE = "profd"
    BINDINGS = [
        Binding("question_mark,f1", "help", "help", show=False),
        Binding("b", "keep", "background", show=False),
        Binding("ctrl+z", "suspend_process", "shell", show=False),
        Binding("q", "quit", "leave"),
        Binding("ctrl+c", "interrupt", show=False),
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
        self._stopping = list(STOPPING)
        self.now_s = time.monotonic

    def get_driver_class(self) -> type[Driver]:
        return _Driver

    def get_default_screen(self) -> Screen[None]:
        return Dashboard(self._run_file, self.feed, self._terminal)

    def on_mount(self) -> None:
        self.run_worker(self.feed.run, thread=True, group="feed", name="feed")

    def on_unmount(self) -> None:
        """Let the reading thread end, because the interpreter waits for it."""
        self.feed.stop()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield SystemCommand("Theme", "Change the colors", self.action_change_theme)
        for title, about, action in COMMANDS:
            if isinstance(screen, Dashboard) or action.startswith("app."):
                yield SystemCommand(title, about, partial(screen.run_action, action))

    async def action_quit(self) -> None:
        self._leave()

    def action_interrupt(self) -> None:
        self._leave(by_interrupt=True)

    def _leave(self, *, by_interrupt: bool = False) -> None:
        dashboard = self.screen_stack[0]
        info = dashboard.info if isinstance(dashboard, Dashboard) else None

        def leave(answer: str | None) -> None:
            if answer == STOP and isinstance(dashboard, Dashboard) and dashboard.may_act():
                self._stop_script()
            elif answer == Leaving.KEEP.value or (answer == Leaving.END.value and self._may_end):
                self.exit(Leaving(answer))
            elif answer == Leaving.END.value and info is not None:
                # The caller of this dashboard cannot end the recording, but its session can be
                # asked.
                self.run_worker(lambda: self._end(info), thread=True, group="action")

        if info is None or not info.is_live or isinstance(self.screen, FailureScreen):
            self.exit(Leaving.END)
        elif not isinstance(self.screen, LeavingScreen):
            may_stop = self._terminal is not None and self._terminal.is_open
            stopping = self._stopping[0] if may_stop else None
            screen = LeavingScreen(stopping, by_interrupt=by_interrupt, now_s=self.now_s)
            self.push_screen(screen, leave)

    def _stop_script(self) -> None:
        """Send the script the next signal; ask before the one that it cannot catch."""
        if self._stopping[0] is not signal.SIGKILL:
            self._signal_script(self._stopping.pop(0))
            return
        choices = [
            Choice("leave", "leave it running", ("n",)),
            Choice("kill", "kill it and all that it started in its terminal", ("y",)),
        ]
        screen = ChoiceScreen("Kill the script?", "What it has not saved is lost.", choices)
        self.push_screen(
            screen, lambda answer: self._signal_script(signal.SIGKILL) if answer == "kill" else None
        )

    def _signal_script(self, number: signal.Signals) -> None:
        if self._terminal is not None and self._terminal.signal(number):
            self.notify(f"the script has been sent {number.name}", markup=False)
        else:
            text = "the script cannot be reached: the launcher is gone, or busy"
            self.notify(text, severity="error", markup=False)

    def _end(self, info: RunInfo) -> None:
        try:
            actions.stop(info)
        except ProfdError as error:
            self._post_to_screen(ActionFailed(error, "Not stopped"))
        else:
            self.call_from_thread(self.exit, Leaving.END)

    def action_keep(self) -> None:
        self.exit(Leaving.KEEP)

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
