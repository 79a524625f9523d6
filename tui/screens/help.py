"""The keys, on a sheet over the dashboard."""

from __future__ import annotations

from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS = (
    ("1 2 3 4", "hot functions, processes, events, the script's output"),
    ("↑ ↓ home end", "move the cursor; rows keep their places while it is in the table"),
    ("esc", "take the cursor out, clear the filter, stop typing to the script; then back to live"),
    ("/", "show only what has a word in it"),
    ("s", "order functions by self or by total time"),
    ("t", "count main threads, all threads, or one process"),
    ("⏎", "in 2: the functions of a process; in 4: type to a launched script"),
    ("← →", "move the cursor in time, with shift by ten columns (or , . < >); the mouse does, too"),
    ("[ ]", "let the range begin, or end, at the cursor; dragging the mouse does both"),
    ("g", "go to a time: seconds from the start, or HH:MM:SS"),
    ("z Z", "show less time, or more: the last 30 s to the whole run"),
    ("p", "hold the view; the recording goes on"),
    ("r", "write the report, an HTML file, into the current folder"),
    ("ctrl+p", "all commands, and the colors"),
)
LEAVING = (("b", "leave, and let the recording go on"), ("q", "leave, and end the recording"))
LEAVING_ONLY = (("q", "leave; a recording goes on"),)


class HelpScreen(ModalScreen[None]):
    """The sheet; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,space", "close", "close", show=False)
    ]

    def __init__(self, *, may_end: bool) -> None:
        super().__init__()
        self._keys = (*KEYS, *(LEAVING if may_end else LEAVING_ONLY))

    def compose(self) -> ComposeResult:
        """Make the sheet."""
        table = Table.grid(padding=(0, 2))
        for keys, meaning in self._keys:
            table.add_row(Text(keys, style="bold", no_wrap=True), Text(meaning))
        with VerticalScroll(id="sheet") as sheet:
            sheet.border_title = "Keys"
            sheet.border_subtitle = "esc closes"
            yield Static(table)

    def action_close(self) -> None:
        """Close the sheet."""
        self.dismiss()
