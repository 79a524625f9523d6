"""The keys of the dashboard and their actions.

This includes the text for each in the line of keys, the help and the palette.
"""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import BindingType

TABS = (
    ("lines", "Lines", "Your lines", "The lines of your code that take most"),
    ("hot", "Hot", "Hot functions", "Where the samples were"),
    ("flame", "Flame", "Flame graph", "The stacks as an icicle"),
    ("processes", "Processes", "Processes", "The process tree"),
    ("torch", "Torch", "Torch operators", "Those of the last window"),
    ("findings", "Findings", "Findings", "What holds the training back"),
    ("events", "Events", "Events", "What happened"),
    ("output", "Output", "Output", "What the script wrote"),
)
"""The tabs by the number keys from 1: id and name; title and help in the palette."""


class Key(NamedTuple):
    """What keys do: ``names`` are Textual's, ``action`` is one of the screen.

    Keys of the application are the exception. The palette of commands shows ``title`` and
    ``about``, the line of keys ``word``. There the lowest ``rank`` stays the longest, and the first
    name is shown, unless another one is given.
    """

    names: str
    action: str
    title: str = ""
    about: str = ""
    word: str = ""
    rank: int = 0
    shown: str = ""


KEYS = (
    Key("slash", "filter", shown="/", word="filter", rank=5),
    Key("w", "window", "Window", "Take a torch.profiler window", "window", 11),
    Key("d", "dump", "Dump", "Show the stacks of all threads now", "dump", 13),
    Key("m", "mark", "Mark", "Mark this moment, with a note", "mark", 12),
    Key("e", "export", "Export", "Write what is looked at for another tool", "export", 14),
    Key("o", "sort", word="order", rank=6),
    Key("l", "lines", "Startup or details", "The startup's lines; all events", "startup", 7),
    Key("t", "scope", "Threads", "Main threads, those of workers, or all", "threads", 4),
    Key("left,comma", "time('moved', -1)", shown="←→", word="time", rank=3),
    Key("right,full_stop", "time('moved', 1)"),
    Key("shift+left,less_than_sign", "time('moved', -10)"),
    Key("shift+right,greater_than_sign", "time('moved', 10)"),
    Key("left_square_bracket", "time('begun')"),
    Key("right_square_bracket", "time('finished')"),
    Key("g", "goto", "Go to a time", "Seconds from the start, or HH:MM:SS"),
    Key("z", "time('zoomed', 1)", "Zoom in", "Show less time", "zoom", 9),
    Key("Z", "time('zoomed', -1)", "Zoom out", "Show more time"),
    Key("p", "pause", "Pause", "Hold the view; recording goes on", "pause", 8),
    Key("r", "report", "Report", "Write the report, an HTML file", "report", 2),
    Key("enter", "type"),
    Key("escape", "close_filter"),
    Key("pageup", "page_output(-1)"),
    Key("pagedown", "page_output(1)"),
    Key("plus,equals_sign", "rate(1)", "Sample more often", "The next higher rate"),
    Key("minus", "rate(-1)", "Sample less often", "The next lower rate"),
    Key("", "live", "Live", "Give up cursor and range"),
    Key("", "app.help", "Keys", "Show what each key does", "help", 1, "?"),
    Key("", "app.keep", "Background", "Leave, and let the recording go on", "background", 10, "b"),
    Key(
        "",
        "app.quit",
        "Leave",
        "Leave; of a recording it asks whether to go on or to end",
        "leave",
        0,
        "q",
    ),
)
BINDINGS: list[BindingType] = [
    *((str(n), f"open('{tab}')") for n, (tab, *_) in enumerate(TABS, start=1)),
    *((key.names, key.action) for key in KEYS if key.names),
]
COMMANDS = (
    *((title, about, f"open('{tab}')") for tab, _, title, about in TABS),
    *((key.title, key.about, key.action) for key in KEYS if key.title),
)
"""The commands of the palette that a key of the dashboard runs, too: title, help and action."""
HELP = (
    ("1 … 8", "open a view by its number"),
    ("↑ ↓ home end", "move the cursor, pgup pgdn by a page; it holds the rows"),
    ("⏎", "look into a line, a process, a finding; in 8 type"),
    ("esc", "free the rows, clear the filter, stop typing; back to live"),
    ("/", "show only what has a word in it"),
    ("o", "order by the next column; a click on a title does, too"),
    ("l", "in 1 the startup instead, in 7 what profd itself did, too"),
    ("t", "main threads, those of workers, or all threads"),
    ("3: ⏎ ⌫ i f c", "zoom, go back, invert, fold libraries, color"),
    ("← →", "move in time, with shift by ten columns (or , . < >)"),
    ("[ ]", "begin or end the range at the cursor, as dragging does"),
    ("g", "go to a time: seconds from the start, or HH:MM:SS"),
    ("z Z", "show less time, or more: the last 30 s to the whole run"),
    ("p", "hold the view; the recording goes on"),
    ("w d m", "torch.profiler window; stacks of all threads; mark"),
    ("+ -", "sample more often, or less; the budget holds"),
    ("e r", "export what is looked at; write the report, one HTML file"),
    ("ctrl+p", "all commands, and the colors"),
    ("b", "leave, and let the recording go on in the background"),
    ("ctrl+z", "give the shell the terminal; fg comes back"),
    ("q ctrl+c", "leave; the script of profd run can be stopped there"),
)
"""As many lines as a terminal of 24 has room for, none so long that 80 columns break it."""
