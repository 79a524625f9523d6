"""Marks on the axis: one for each thing that happened, in order of time."""

from __future__ import annotations

from profd.daemon.store.rows import EventRow, WindowRow
from profd.tui.scrub import CHANGE, NOTE, TROUBLE, WINDOW, Mark, marks_of


def event(at_ns: int, kind: str) -> EventRow:
    return EventRow(at_ns, at_ns, kind, None, f"{kind} at {at_ns}")


def window(number: int, asked_ns: int, start_ns: int, error: str = "") -> WindowRow:
    return WindowRow(number, 1, "kineto", asked_ns, error, start_ns, start_ns + 50, None, None, None, 0, None)


def test_each_kind_that_is_marked_has_its_sign() -> None:
    kinds = ["note", "mark", "error", "oom", "loss", "gpu", "hang", "finding", "wall-jump", "exec", "rate"]
    marks = marks_of([event(at_ns, kind) for at_ns, kind in enumerate(kinds)], ())
    assert [mark.kind for mark in marks] == [NOTE] * 2 + [TROUBLE] * 5 + [CHANGE] * 4
    assert marks[0] == Mark(NOTE, 0, 1, "note at 0")


def test_what_goes_without_saying_is_not_marked() -> None:
    assert marks_of([event(1, "started"), event(2, "counter"), event(3, "window"), event(4, "ended")], ()) == ()


def test_windows_that_were_asked_for_at_once_are_one_and_failed_ones_none() -> None:
    windows = [window(1, 10, 100), window(2, 10, 110), window(3, 20, 300), window(4, 30, 500, "it did not answer")]
    marks = marks_of([event(200, "mark")], windows)
    assert [(mark.kind, mark.from_ns, mark.to_ns) for mark in marks] == [
        (WINDOW, 110, 160),
        (NOTE, 200, 201),
        (WINDOW, 300, 350),
    ]
