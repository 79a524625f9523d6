"""The keys of the dashboard: what each is bound to, and what the line of keys, the help and the palette say of it."""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import Binding, BindingType

TABS = (
    ("hot", "Hot"),
    ("flame", "Flame"),
    ("processes", "Processes"),
    ("torch", "Torch"),
    ("findings", "Findings"),
    ("events", "Events"),
    ("output", "Output"),
)
"""The tabs by the number keys from 1: id and name."""

_FAR_COLUMNS = 10
BINDINGS: list[BindingType] = [
    *(Binding(str(n), f"open('{tab}')", name, show=False) for n, (tab, name) in enumerate(TABS, start=1)),
    Binding("o", "sort", "order"),
    Binding("slash", "filter", "filter", show=False),
    Binding("escape", "close_filter", "clear the filter", show=False),
    Binding("t", "scope", "threads"),
    Binding("l", "lines", "functions or lines"),
    Binding("p", "pause", "pause"),
    Binding("left,comma", "scrub(-1)", "earlier", show=False),
    Binding("right,full_stop", "scrub(1)", "later", show=False),
    Binding("shift+left,less_than_sign", f"scrub(-{_FAR_COLUMNS})", "much earlier", show=False),
    Binding("shift+right,greater_than_sign", f"scrub({_FAR_COLUMNS})", "much later", show=False),
    Binding("left_square_bracket", "begin_range", "begin a range", show=False),
    Binding("right_square_bracket", "end_range", "end a range", show=False),
    Binding("g", "goto", "go to a time", show=False),
    Binding("z", "zoom(1)", "less time", show=False),
    Binding("Z", "zoom(-1)", "more time", show=False),
    Binding("enter", "type", "type to the script", show=False),
    Binding("pageup", "page_output(-1)", "scroll the output", show=False),
    Binding("pagedown", "page_output(1)", "scroll the output", show=False),
    Binding("w", "window", "window"),
    Binding("d", "dump", "dump"),
    Binding("m", "mark", "mark"),
    Binding("r", "report", "report"),
    Binding("e", "export", "export"),
    Binding("plus,equals_sign", "rate(1)", "sample more often", show=False),
    Binding("minus", "rate(-1)", "sample less often", show=False),
    Binding("s", "stop", "stop profiling"),
]


class Key(NamedTuple):
    """A key, what it does in a word, and the action that it stands for; the lowest ``rank`` stays the longest."""

    key: str
    word: str
    action: str
    rank: int


KEYS = (
    Key("/", "filter", "screen.filter", 5),
    Key("w", "window", "screen.window", 11),
    Key("d", "dump", "screen.dump", 13),
    Key("m", "mark", "screen.mark", 12),
    Key("e", "export", "screen.export", 14),
    Key("o", "order", "screen.sort", 6),
    Key("l", "lines", "screen.lines", 7),
    Key("t", "threads", "screen.scope", 4),
    Key("←→", "time", "screen.scrub(-1)", 3),
    Key("z", "zoom", "screen.zoom(1)", 9),
    Key("p", "pause", "screen.pause", 8),
    Key("r", "report", "screen.report", 2),
    Key("?", "help", "app.help", 1),
    Key("b", "background", "app.keep", 10),
    Key("q", "leave", "app.quit", 0),
)
HELP = (
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
    ("b", "leave, and let the recording go on in the background"),
    ("ctrl+z", "give the shell the terminal; fg comes back, and the script goes on meanwhile"),
    ("q", "leave; of a recording it asks whether to go on or to end"),
)
COMMANDS = (
    ("Hot functions", "Where the samples were", "open('hot')"),
    ("Lines", "Hot lines instead of functions, and back", "lines"),
    ("Flame graph", "The stacks as an icicle", "open('flame')"),
    ("Processes", "The process tree", "open('processes')"),
    ("Torch operators", "Those of the last window", "open('torch')"),
    ("Findings", "What holds the training back", "open('findings')"),
    ("Events", "What happened", "open('events')"),
    ("Output", "What the script wrote", "open('output')"),
    ("Threads", "Count main threads, all threads, or one process", "scope"),
    ("Go to a time", "Seconds from the start, or HH:MM:SS", "goto"),
    ("Zoom in", "Show less time", "zoom(1)"),
    ("Zoom out", "Show more time", "zoom(-1)"),
    ("Live", "Give up cursor and range", "live"),
    ("Pause", "Hold the view; recording goes on", "pause"),
    ("Report", "Write the report, an HTML file", "report"),
    ("Export", "Write what is looked at for another tool", "export"),
    ("Window", "Take a torch.profiler window", "window"),
    ("Dump", "Show the stacks of all threads now", "dump"),
    ("Mark", "Mark this moment, with a note", "mark"),
    ("Sample more often", "The next higher rate", "rate(1)"),
    ("Sample less often", "The next lower rate", "rate(-1)"),
    ("Stop profiling", "End the recording; the script runs on", "stop"),
)
"""The commands of the palette that a key of the dashboard runs, too: title, help and action."""
