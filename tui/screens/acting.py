"""The keys that have something done: windows, dumps, marks, exports, the rate, and the end of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen

from profd.daemon.analyze.selection import Selection
from profd.daemon.exports.formats import FORMATS
from profd.daemon.store.rows import RunInfo
from profd.tui import actions
from profd.tui.actions import (
    Action,
    ActionDone,
    ActionFailed,
    ReportFailed,
    ReportWritten,
    StacksDumped,
    WindowRefused,
)
from profd.tui.screens.dialogs import Choice, ChoiceScreen, LineScreen, StacksScreen

_LONG_S = 15


class Acting(Screen[None]):
    """A screen on a run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "window", "window"),
        Binding("d", "dump", "dump"),
        Binding("m", "mark", "mark"),
        Binding("r", "report", "report"),
        Binding("e", "export", "export"),
        Binding("plus,equals_sign", "rate(1)", "sample more often", show=False),
        Binding("minus", "rate(-1)", "sample less often", show=False),
        Binding("s", "stop", "stop profiling"),
    ]

    @property
    def info(self) -> RunInfo | None:
        """The run as it was last seen; None before."""
        raise NotImplementedError

    @property
    def run_file(self) -> Path:
        """Its file."""
        raise NotImplementedError

    @property
    def selection(self) -> Selection:
        """What is looked at."""
        raise NotImplementedError

    def action_window(self) -> None:
        """Take a torch.profiler window."""
        self._ask_for_window()

    def action_dump(self) -> None:
        """Show the stacks of all threads now."""
        if (info := self.info) is not None:
            self._send(lambda: actions.dump(info))

    def action_mark(self) -> None:
        """Mark this moment, with a note."""
        if self._may_act():
            self.app.push_screen(LineScreen("Mark this moment", "a note, or nothing"), self._mark)

    def action_report(self) -> None:
        """Write the report."""
        self.notify("writing the report…", timeout=3, markup=False)
        self._send(lambda: actions.write_report_of(self.run_file))

    def action_export(self) -> None:
        """Write what is looked at for another tool."""
        choices = [Choice(form, f"{form}: {what}") for form, what in FORMATS.items()]
        self.app.push_screen(ChoiceScreen("Export into the current folder", "", choices), self._export)

    def action_rate(self, steps: int) -> None:
        """Sample more often, or less."""
        if (info := self.info) is not None:
            self._send(lambda: actions.change_rate(info, steps))

    def action_stop(self) -> None:
        """Ask whether the recording is to end."""
        if self._may_act():
            text = "The script runs on; what was recorded is kept."
            choices = [Choice("stop", "end the recording", ("s", "y")), Choice("go on", "go on recording", ("n",))]
            self.app.push_screen(ChoiceScreen("Stop profiling?", text, choices), self._stop)

    def _ask_for_window(self, *, inject: bool = False) -> None:
        if (info := self.info) is not None:
            self._send(lambda: actions.take_window(info, inject=inject))

    def _mark(self, note: str | None) -> None:
        if note is not None and (info := self.info) is not None:
            self._send(lambda: actions.mark(info, note))

    def _export(self, form: str | None) -> None:
        if form is not None:
            selection = self.selection
            self.notify("exporting…", timeout=3, markup=False)
            self._send(lambda: actions.export(self.run_file, form, selection))

    def _stop(self, answer: str | None) -> None:
        if answer == "stop" and (info := self.info) is not None:
            self._send(lambda: actions.stop(info))

    def _inject(self, answer: str | None) -> None:
        if answer == "inject":
            self._ask_for_window(inject=True)

    def _may_act(self) -> bool:
        """Say whether the run is recorded, and tell the person where it is not."""
        is_live = self.info is not None and self.info.state == "live"
        if not is_live:
            self.notify("the run is not recorded any more", severity="warning", markup=False)
        return is_live

    def _send(self, errand: Action) -> None:
        """Have something done in a thread, and its message posted here."""
        self.run_worker(lambda: self.post_message(errand()), thread=True, group="errand")

    @on(ActionDone)
    def _say_done(self, message: ActionDone) -> None:
        self.notify(message.text, title=message.title, timeout=_LONG_S, markup=False)

    @on(ActionFailed)
    def _say_failed(self, message: ActionFailed) -> None:
        self.notify(str(message.error), title=message.title, severity="error", timeout=_LONG_S, markup=False)

    @on(WindowRefused)
    def _say_refused(self, message: WindowRefused) -> None:
        if not message.may_inject:
            self.notify(str(message.error), title="No window", severity="error", timeout=_LONG_S, markup=False)
            return
        text = (
            "The script was not launched with --torch-window. The profiler can be started inside of the running "
            "process: by Python itself from 3.14 on, else by gdb. That runs code of torch in the script."
        )
        choices = [Choice("inject", "start it in the process", ("y",)), Choice("leave", "leave it alone", ("n",))]
        self.app.push_screen(ChoiceScreen("No window so", text, choices), self._inject)

    @on(StacksDumped)
    def _show_stacks(self, message: StacksDumped) -> None:
        self.app.push_screen(StacksScreen(message.dumped, message.stacks))

    @on(ReportWritten)
    def _say_written(self, message: ReportWritten) -> None:
        self.notify(str(message.path), title="Report written", timeout=_LONG_S, markup=False)

    @on(ReportFailed)
    def _say_no_report(self, message: ReportFailed) -> None:
        self.notify(str(message.error), title="No report", severity="error", timeout=_LONG_S, markup=False)
