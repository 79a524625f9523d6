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
    ("1 … 7", "hot functions, flame graph, processes, torch operators, findings, events, the script's output"),
    ("↑ ↓ home end", "move the cursor, pgup and pgdn by a page; rows keep their places while it is in the table"),
    ("esc", "take the cursor out, clear the filter, stop typing to the script; then back to live"),
    ("/", "show only what has a word in it"),
    ("o", "order by the next column; a click on a column's title orders by that one"),
    ("l", "hot lines instead of hot functions, and back"),
    ("t", "count main threads, all threads, or one process"),
    ("⏎", "in 3: the functions of a process; in 5: the stacks that prove a finding; in 7: type to the script"),
    ("2: ↑ ↓ ← →", "walk through the flame graph; ⏎ zooms, ⌫ goes back, i inverts, f folds libraries, c colors"),
    ("← →", "move the cursor in time, with shift by ten columns (or , . < >); the mouse does, too"),
    ("[ ]", "let the range begin, or end, at the cursor; dragging the mouse does both"),
    ("g", "go to a time: seconds from the start, or HH:MM:SS"),
    ("z Z", "show less time, or more: the last 30 s to the whole run"),
    ("p", "hold the view; the recording goes on"),
    ("w", "take a torch.profiler window; 4 shows its operators"),
    ("d", "the stacks of all threads now"),
    ("m", "mark this moment, with a note"),
    ("+ -", "sample more often, or less; the budget holds"),
    ("s", "stop profiling; the script runs on"),
    ("e", "export what is looked at: collapsed, speedscope, pprof, Perfetto, …"),
    ("r", "write the report, an HTML file, into the current folder"),
    ("ctrl+p", "all commands, and the colors"),
)
LEAVING = (
    ("b", "leave, and let the recording go on in the background"),
    ("ctrl+z", "give the shell the terminal; fg comes back, and the script goes on meanwhile"),
    ("q", "leave; of a recording it asks whether to go on or to end"),
)


class HelpScreen(ModalScreen[None]):
    """The sheet; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,space", "close", "close", show=False)
    ]

    def compose(self) -> ComposeResult:
        """Make the sheet."""
        table = Table.grid(padding=(0, 2))
        for keys, meaning in (*KEYS, *LEAVING):
            table.add_row(Text(keys, style="bold", no_wrap=True), Text(meaning))
        with VerticalScroll(id="sheet") as sheet:
            sheet.border_title = "Keys"
            sheet.border_subtitle = "esc closes"
            yield Static(table)

    def action_close(self) -> None:
        """Close the sheet."""
        self.dismiss()
