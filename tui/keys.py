"""The keys of the dashboard and their actions.

This includes the text for each in the line of keys, the help and the palette.
"""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import BindingType

TABS = (
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
    Key("l", "lines", "Lines", "Hot lines instead of functions, and back", "lines", 7),
    Key("t", "scope", "Threads", "Count main threads, all threads, or one process", "threads", 4),
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
    Key("s", "stop", "Stop profiling", "End the recording; the script runs on"),
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
    (
        "1 … 7",
        "hot functions, flame graph, processes, torch operators, findings, events, the script's "
        "output",
    ),
    (
        "↑ ↓ home end",
        "move the cursor, pgup and pgdn by a page; rows keep their places while it is in the table",
    ),
    ("esc", "take the cursor out, clear the filter, stop typing to the script; then back to live"),
    ("/", "show only what has a word in it"),
    ("o", "order by the next column; a click on a column's title orders by that one"),
    ("l", "hot lines instead of hot functions, and back"),
    ("t", "count main threads, all threads, or one process"),
    (
        "⏎",
        "in 3: the functions of a process; in 5: the stacks that prove a finding; in 7: type to "
        "the script",
    ),
    (
        "2: ↑ ↓ ← →",
        "walk through the flame graph; ⏎ zooms, ⌫ goes back, i inverts, f folds libraries, "
        "c colors",
    ),
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
    ("b", "leave, and let the recording go on in the background"),
    ("ctrl+z", "give the shell the terminal; fg comes back, and the script goes on meanwhile"),
    ("q", "leave; of a recording it asks whether to go on or to end"),
)
