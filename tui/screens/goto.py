"""Asks for a time to go to, on a line over the dashboard."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from profd.daemon.analyze.moment import parse_time
from profd.daemon.errors import UsageError
from profd.daemon.store.rows import RunInfo


class GotoScreen(ModalScreen[int | None]):
    """The line; it gives back a time of the run's clock, None where there is none to go to."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "close", show=False)]

    def __init__(self, info: RunInfo) -> None:
        super().__init__()
        self._info = info

    def compose(self) -> ComposeResult:
        """Make the line."""
        yield Static(id="goto-error", markup=False)
        yield Input(id="goto", placeholder="go to: seconds from the start, or HH:MM:SS", compact=True)

    def action_close(self) -> None:
        """Go nowhere."""
        self.dismiss(None)

    @on(Input.Submitted)
    def _go(self, event: Input.Submitted) -> None:
        try:
            self.dismiss(parse_time(event.value.strip(), self._info))
        except UsageError as error:
            self.query_one("#goto-error", Static).update(str(error))
