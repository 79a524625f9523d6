"""The keys, on a sheet over the dashboard."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS = (
    ("1 2 3 4", "hot functions, processes, events, the script's output"),
    ("↑ ↓  home end", "move the cursor; rows keep their places while it is there"),
    ("esc", "take the cursor out, clear the filter, stop typing to the script"),
    ("/", "show only what has a word in it"),
    ("s", "order functions by self or by total time"),
    ("t", "count main threads, all threads, or one process (of the cursor in 2)"),
    ("l", "the last 30 s, or the whole run"),
    ("p", "hold the view; recording goes on"),
    ("r", "write the report, an HTML file, into the current folder"),
    ("⏎", "on the output of a launched script: type to it; ctrl+c goes to it too"),
    ("b", "leave, and let the recording go on"),
    ("q", "leave, and end the recording"),
    ("ctrl+p", "all commands, themes"),
)


class HelpScreen(ModalScreen[None]):
    """The sheet; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,space", "close", "close", show=False)
    ]

    def compose(self) -> ComposeResult:
        """Make the sheet."""
        text = Text()
        for number, (keys, meaning) in enumerate(KEYS):
            text.append("\n" if number else "")
            text.append(f"{keys:<15}", style="bold")
            text.append(meaning)
        with VerticalScroll(id="sheet") as sheet:
            sheet.border_title = "Keys"
            sheet.border_subtitle = "esc closes"
            yield Static(text, markup=False)

    def action_close(self) -> None:
        """Close the sheet."""
        self.dismiss()
