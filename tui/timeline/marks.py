"""What happened, as marks on the axis of the timeline: windows, notes, trouble."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from profd.daemon.store.rows import EventRow, WindowRow

WINDOW, SAVE, NOTE, TROUBLE, CHANGE = "window", "save", "note", "trouble", "change"
_KINDS = {
    "note": NOTE,
    "mark": NOTE,
    "error": TROUBLE,
    "oom": TROUBLE,
    "loss": TROUBLE,
    "gpu": TROUBLE,
    "hang": TROUBLE,
    "finding": CHANGE,
    "wall-jump": CHANGE,
    "exec": CHANGE,
    "rate": CHANGE,
}


class Mark(msgspec.Struct, frozen=True):
    """Something at a time, or over a time; ``kind`` is one of those above."""

    kind: str
    from_ns: int
    to_ns: int
    text: str


def marks_of(events: Iterable[EventRow], windows: Iterable[WindowRow]) -> tuple[Mark, ...]:
    """Return the marks of a run, in order of time; the windows of all ranks that were asked at once are one."""
    found = {row.asked_ns: Mark(WINDOW, row.start_ns, row.end_ns, "window") for row in windows if not row.error}
    marks = [*found.values()]
    marks += [
        Mark(_KINDS[event.kind], event.at_ns, event.at_ns + 1, event.text) for event in events if event.kind in _KINDS
    ]
    return tuple(sorted(marks, key=lambda mark: mark.from_ns))
