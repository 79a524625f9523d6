"""What lies below the tabs: the tables and the script's output, of which one is shown."""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.widgets import ContentSwitcher

from profd.tui.widgets.findings import FindingsPane
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.processes import EventTable, ProcessTable

Pane = HotTable | FlameView | ProcessTable | OperatorTable | FindingsPane | EventTable
"""What can be open below the tabs, beside the script's output."""


class PanesResized(Message):
    """There is other room for the tables, and for the script's output."""


class Panes(ContentSwitcher):
    """The tables and the output, of which one is shown."""

    def on_resize(self, event: events.Resize) -> None:
        """Say that there is other room."""
        self.post_message(PanesResized())
