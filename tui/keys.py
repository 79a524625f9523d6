"""The keys of the dashboard and their actions.

This includes the text for each in the line of keys and in the help.
"""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import BindingType

TABS = (
    ("lines", "Lines"),
    ("hot", "Hot"),
    ("flame", "Flame"),
    ("processes", "Processes"),
    ("torch", "Torch"),
    ("findings", "Findings"),
    ("events", "Events"),
    ("output", "Output"),
)
"""The tabs by the number keys from 1: id and name."""


class Key(NamedTuple):
    """What keys do: ``names`` are Textual's, ``action`` is one of the screen, or of the app.

    The line of keys shows ``word`` after the first name, unless another one is ``shown``. There the
    lowest ``rank`` stays the longest. A key that has no action is the open view's own. ``tabs`` are
    those in which it does something, by default all; ``of_live`` keys do nothing once the run has
    ended.
    """

    names: str
    action: str = ""
    word: str = ""
    rank: int = 0
    shown: str = ""
    tabs: tuple[str, ...] = ()
    of_live: bool = False

    def acts(self, tab: str, *, is_live: bool) -> bool:
        return (tab in self.tabs or not self.tabs) and (is_live or not self.of_live)


_SORTED, _SAMPLED = ("lines", "hot", "torch"), ("lines", "hot", "flame")
KEYS = (
    Key("enter", "", "stacks", 2, "⏎", ("lines",)),
    Key("enter", "", "functions", 2, "⏎", ("processes",)),
    Key("enter", "", "proof", 2, "⏎", ("findings",)),
    Key("enter", "", "whole text", 2, "⏎", ("events",)),
    Key("pagedown", "", "more of it", 4, "pgdn", ("findings",)),
    Key("slash", "filter", "filter", 4, "/"),
    Key("o", "sort", "order", 9, tabs=_SORTED),
    Key("l", "lines", "startup", 10, tabs=("lines",)),
    Key("t", "scope", "threads", 7, tabs=_SAMPLED),
    Key("left,comma", "time('moved', -1)", "time", 5, "←→"),
    Key("right,full_stop", "time('moved', 1)"),
    Key("shift+left,less_than_sign", "time('moved', -10)"),
    Key("shift+right,greater_than_sign", "time('moved', 10)"),
    Key("left_square_bracket", "time('begun')", "range", 6, "[ ]"),
    Key("right_square_bracket", "time('finished')"),
    Key("g", "goto", "go to", 15),
    Key("z", "time('zoomed', 1)", "zoom", 13),
    Key("Z", "time('zoomed', -1)"),
    Key("p", "pause", "pause", 14, of_live=True),
    Key("d", "dump", "dump", 11, of_live=True),
    Key("w", "window", "window", 3, tabs=("torch",), of_live=True),
    Key("m", "mark", "mark", 17, of_live=True),
    Key("e", "export", "export", 8),
    Key("r", "report", "report", 3),
    Key("enter", "type"),
    Key("escape", "close_filter"),
    Key("pageup", "page(-1)"),
    Key("pagedown", "page(1)"),
    Key("question_mark", "app.help", "help", 1, "?"),
    Key("q", "app.quit", "leave"),
)
BINDINGS: list[BindingType] = [
    *((str(n), f"open('{tab}')") for n, (tab, _) in enumerate(TABS, start=1)),
    *((key.names, key.action) for key in KEYS if key.action and not key.action.startswith("app.")),
]
HELP = (
    ("1 … 8", "open a view by its number"),
    ("↑ ↓ home end", "move the cursor, pgup pgdn by a page; it holds the rows"),
    ("⏎", "look into a line, process, finding or event; in 8 type"),
    ("esc", "free the rows, clear the filter, stop typing; back to live"),
    ("/", "show only what has a word in it"),
    ("o", "order by the next column; a click on a title does, too"),
    ("l", "in 1 the startup instead, in 7 what profd itself did, too"),
    ("t", "main threads, those of workers, or all threads"),
    ("3: ⏎ ⌫ i f c", "zoom, go back, invert, fold libraries, color"),
    ("← →", "move in time, with shift by ten columns (or , . < >)"),
    ("[ ]", "begin, end a range at the cursor; `profd diff` compares two"),
    ("g", "go to a time: seconds from the start, or HH:MM:SS"),
    ("z Z", "show less time, or more: the last 30 s to the whole run"),
    ("p", "hold the view; the recording goes on"),
    ("w d m", "torch.profiler window; stacks of all threads; mark"),
    ("e r", "export what is looked at; write the report, one HTML file"),
    ("ctrl+p", "other colors"),
    ("ctrl+z", "give the shell the terminal; fg comes back"),
    ("q ctrl+c", "leave; the script of profd run can be stopped there"),
)
"""As many lines as a terminal of 24 has room for, none so long that 80 columns break it."""
