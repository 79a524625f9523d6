"""The line that filters rows, and searches the flame graph. What has the text in it, each pane knows itself."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from profd.tui.screens.panes import Pane
from profd.tui.widgets.findings import FindingsPane


class FilterLine(Input):
    """The line; it is there while something is typed in it."""

    def __init__(self) -> None:
        super().__init__(id="filter", placeholder="show only what has this in it", compact=True)


class Filtering(Screen[None]):
    """A screen with a filter line below its panes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "filter", "filter", show=False)]

    @property
    def pane(self) -> Pane | None:
        """What is open below the tabs; None where it is the script's output."""
        raise NotImplementedError

    @property
    def is_filtering(self) -> bool:
        """Whether the line is open."""
        return self.query_one(FilterLine).has_class("-open")

    @on(Input.Changed, "#filter")
    def _filter(self, event: Input.Changed) -> None:
        if self.pane is not None:
            self.pane.filter(event.value)

    @on(Input.Submitted, "#filter")
    def _keep_filter(self, event: Input.Submitted) -> None:
        event.input.set_class(bool(event.value), "-open")
        self.focus_pane()

    def action_filter(self) -> None:
        """Ask for what the rows shall have in them."""
        if self.pane is not None:
            line = self.query_one(FilterLine)
            line.add_class("-open")
            self.set_focus(line)

    def clear_filter(self) -> None:
        """Show all rows again, without the line."""
        line = self.query_one(FilterLine)
        line.value = ""
        line.remove_class("-open")
        if self.pane is not None:
            self.pane.filter("")

    def search_for(self, text: str) -> None:
        """Filter by a text as though it had been typed."""
        line = self.query_one(FilterLine)
        line.value = text
        line.add_class("-open")

    def focus_pane(self) -> None:
        """Give keys to what is open; to the script's output only when somebody types."""
        pane = self.pane
        self.set_focus(pane.table if isinstance(pane, FindingsPane) else pane)
