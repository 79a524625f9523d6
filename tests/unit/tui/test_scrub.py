"""Where the person is in time, move by move."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.present import there

from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind, Sign
from profd.daemon.store.rows import EventRow, WindowRow
from profd.daemon.timerange import EVER, TimeRange
from profd.tui.columns import Ruler
from profd.tui.scrub import SPANS_NS, Mark, Scrub, marks_of
from profd.tui.view import View, is_near, shown_part, span_name

ORIGIN_NS = 1_000 * SECOND_NS
RUN = TimeRange(ORIGIN_NS, ORIGIN_NS + 3600 * SECOND_NS)
RULER = Ruler.filling(RUN.from_ns, RUN.to_ns, 60)


def minute(number: int) -> TimeRange:
    return TimeRange(ORIGIN_NS + number * 60 * SECOND_NS, ORIGIN_NS + (number + 1) * 60 * SECOND_NS)


def at(number: int) -> Scrub:
    return Scrub().at(minute(number).from_ns + SECOND_NS, RULER, RUN)


def test_the_cursor_begins_at_the_newest_column_goes_by_columns_and_ends_with_the_run() -> None:
    assert Scrub().is_live
    assert Scrub().moved(-1, RULER, RUN).cursor == minute(59)
    assert not Scrub().moved(-1, RULER, RUN).is_live
    assert at(30).moved(-10, RULER, RUN).cursor == minute(20)
    assert at(30).moved(1, RULER, RUN).cursor == minute(31)
    assert at(3).moved(-10, RULER, RUN).cursor == minute(0)
    assert at(58).moved(10, RULER, RUN).cursor == minute(59)
    assert Scrub().chosen is None
    assert at(7).chosen == minute(7)


def test_brackets_choose_from_cursor_to_cursor_and_an_end_alone_all_before() -> None:
    assert Scrub().begun(RULER, RUN).chosen == TimeRange(
        minute(59).from_ns, EVER.to_ns
    )  # without a cursor the newest column
    begun = at(10).begun(RULER, RUN)
    assert begun.chosen == TimeRange(minute(10).from_ns, EVER.to_ns)
    moved = begun.moved(5, RULER, RUN)
    assert moved.chosen == begun.chosen
    assert moved.finished(RULER, RUN).chosen == TimeRange(minute(10).from_ns, minute(15).to_ns)
    assert shown_part(there(at(10).finished(RULER, RUN).chosen), RUN) == TimeRange(
        RUN.from_ns, minute(10).to_ns
    )
    ends = at(10).begun(RULER, RUN).moved(5, RULER, RUN).finished(RULER, RUN)
    later = ends.at(minute(40).from_ns, RULER, RUN).begun(RULER, RUN)
    assert (later.from_ns, later.to_ns) == (minute(40).from_ns, None)
    earlier = ends.at(minute(2).from_ns, RULER, RUN).finished(RULER, RUN)
    assert (earlier.from_ns, earlier.to_ns) == (None, minute(2).to_ns)


@pytest.mark.parametrize(("first", "last"), [(10, 20), (20, 10)])
def test_a_drag_chooses_in_either_direction(first: int, last: int) -> None:
    dragged = Scrub().dragged(minute(first).from_ns, minute(last).from_ns, RULER, RUN)
    assert dragged.chosen == TimeRange(minute(10).from_ns, minute(20).to_ns)
    assert dragged.cursor == minute(last)


def test_zoom_goes_from_the_whole_run_to_half_a_minute_and_back() -> None:
    scrub, spans = Scrub(), []
    for _ in range(len(SPANS_NS)):
        scrub = scrub.zoomed(1, RULER, RUN)
        spans.append(scrub.span_ns)
    assert spans == [seconds * SECOND_NS for seconds in (1800, 600, 120, 30, 30, 30)]
    assert scrub.is_live
    for _ in range(4):
        scrub = scrub.zoomed(-1, RULER, RUN)
    assert scrub == Scrub()


def test_a_zoom_has_the_cursor_in_its_middle_and_escape_gives_up_all_else() -> None:
    zoomed = at(30).zoomed(2, RULER, RUN)
    assert zoomed.span_ns == 600 * SECOND_NS
    assert zoomed.end_ns == minute(30).from_ns + 30 * SECOND_NS + 300 * SECOND_NS
    assert at(59).zoomed(2, RULER, RUN).end_ns == RUN.to_ns
    assert at(0).zoomed(2, RULER, RUN).end_ns == RUN.from_ns + 600 * SECOND_NS
    scrub = at(30).zoomed(2, RULER, RUN).begun(RULER, RUN)
    assert scrub.released() == Scrub(span_ns=600 * SECOND_NS)


def test_a_cursor_that_leaves_the_timeline_takes_it_along() -> None:
    scrub = at(30).zoomed(2, RULER, RUN)
    span_ns, end_ns = there(scrub.span_ns), there(scrub.end_ns)
    ruler = Ruler.moving(span_ns, end_ns, 60)
    inside = scrub.moved(-1, ruler, RUN)
    assert inside.end_ns == end_ns
    outside = scrub.moved(-40, ruler, RUN)
    moved_ns = there(outside.end_ns)
    assert moved_ns - span_ns < there(outside.cursor).from_ns < moved_ns < end_ns


MOVES: dict[str, Callable[[Scrub, Ruler], Scrub]] = {
    "left": lambda scrub, ruler: scrub.moved(-1, ruler, RUN),
    "right": lambda scrub, ruler: scrub.moved(1, ruler, RUN),
    "far": lambda scrub, ruler: scrub.moved(-50, ruler, RUN),
    "[": lambda scrub, ruler: scrub.begun(ruler, RUN),
    "]": lambda scrub, ruler: scrub.finished(ruler, RUN),
    "z": lambda scrub, ruler: scrub.zoomed(1, ruler, RUN),
    "Z": lambda scrub, ruler: scrub.zoomed(-1, ruler, RUN),
    "esc": lambda scrub, ruler: scrub.released(),
    "go": lambda scrub, ruler: scrub.at(minute(31).from_ns, ruler, RUN),
}


@given(some.lists(some.sampled_from(sorted(MOVES)), max_size=30))
def test_whatever_is_pressed_the_cursor_is_in_the_run_and_on_the_timeline(keys: list[str]) -> None:
    scrub = Scrub()
    for key in keys:
        end_ns = RUN.to_ns if scrub.end_ns is None else scrub.end_ns
        ruler = RULER if scrub.span_ns is None else Ruler.moving(scrub.span_ns, end_ns, 60)
        scrub = MOVES[key](scrub, ruler)
        if scrub.cursor is not None:
            assert RUN.from_ns < scrub.cursor.to_ns
            assert scrub.cursor.from_ns < RUN.to_ns
            if scrub.span_ns is not None and key in ("left", "right", "far", "go"):
                shown = Ruler.moving(scrub.span_ns, there(scrub.end_ns), 60)
                assert shown.from_ns <= scrub.cursor.from_ns <= shown.to_ns
        if scrub.chosen is not None:
            assert shown_part(scrub.chosen, RUN).length_ns > 0


def test_each_kind_that_is_marked_has_its_sign() -> None:
    kinds = [
        EventKind.NOTE,
        EventKind.ERROR,
        EventKind.FINDING,
        EventKind.STARTED,
        EventKind("of a later version"),
    ]
    marks = marks_of(
        [
            EventRow(at_ns, at_ns, kind, None, f"{kind} at {at_ns}")
            for at_ns, kind in enumerate(kinds)
        ],
        (),
    )
    assert [mark.sign for mark in marks] == [Sign.NOTE, Sign.TROUBLE, Sign.CHANGE]
    assert marks[0] == Mark(Sign.NOTE, TimeRange(0, 1), "note at 0")


def test_windows_that_were_asked_for_at_once_are_one_and_failed_ones_none() -> None:
    windows = [
        WindowRow(
            number, 1, "kineto", asked_ns, error, start_ns, start_ns + 50, None, None, None, 0, None
        )
        for number, asked_ns, start_ns, error in (
            *((1, 10, 100, ""), (2, 10, 110, ""), (3, 20, 300, "")),
            (4, 30, 500, "it did not answer"),
        )
    ]
    marks = marks_of([EventRow(1, 200, EventKind.MARK, None, "mark")], windows)
    assert [(mark.sign, *mark.time) for mark in marks] == [
        (Sign.WINDOW, 110, 160),
        (Sign.NOTE, 200, 201),
        (Sign.WINDOW, 300, 350),
    ]


def test_what_is_near_differs_by_a_tenth_of_the_other_at_each_end() -> None:
    whole = TimeRange(1000, 2000)
    assert is_near(TimeRange(1100, 2100), whole)
    assert not is_near(TimeRange(1101, 2000), whole)
    assert not is_near(TimeRange(1000, 2101), whole)
    # Of what is short a tenth is less.
    assert not is_near(whole, TimeRange(1000, 1500))


@pytest.mark.parametrize(
    ("asked", "inside"),
    [
        (TimeRange(12, 18), TimeRange(12, 18)),
        (TimeRange(0, 15), TimeRange(10, 15)),
        (TimeRange(15, 99), TimeRange(15, 20)),
        (TimeRange(0, 99), TimeRange(10, 20)),
        (TimeRange(0, 5), TimeRange(10, 11)),
        (TimeRange(50, 60), TimeRange(19, 20)),
        (TimeRange(15, 15), TimeRange(15, 16)),
    ],
)
def test_of_a_range_at_least_a_nanosecond_is_left(asked: TimeRange, inside: TimeRange) -> None:
    assert shown_part(asked, TimeRange(10, 20)) == inside


def test_a_view_is_named_by_what_it_shows() -> None:
    spans = {30: "30 s", 120: "2 min", 150: "2 min 30 s", 3600: "1 h", 5400: "1 h 30 min"}
    assert {
        seconds: span_name(seconds * SECOND_NS) for seconds in spans
    } == spans  # without what is zero
    minute = 60 * SECOND_NS
    assert View().name == "whole run"
    assert View(span_ns=minute).name == "last 1 min"
    assert View(span_ns=minute, end_ns=5).name == "1 min"
    assert View().is_everything
    assert not View(span_ns=1).is_everything
    assert not View(chosen=TimeRange(0, 1)).is_everything
