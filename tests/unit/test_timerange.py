from __future__ import annotations

import pytest

from profd.daemon.timerange import EVER, TimeRange

RUN = TimeRange(10, 20)


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        (TimeRange(12, 18), TimeRange(12, 18)),
        (TimeRange(0, 15), TimeRange(10, 15)),
        (TimeRange(15, 99), TimeRange(15, 20)),
        (EVER, RUN),
    ],
)
def test_a_part_lies_in_both_ranges(asked: TimeRange, part: TimeRange) -> None:
    assert asked.within(RUN) == RUN.within(asked) == part
    assert asked.overlaps(RUN)


@pytest.mark.parametrize("asked", [TimeRange(0, 10), TimeRange(20, 99), TimeRange(50, 60)])
def test_ranges_that_only_touch_have_no_part_in_common(asked: TimeRange) -> None:
    assert asked.within(RUN).length_ns == 0
    assert not asked.overlaps(RUN)


def test_a_range_holds_its_start_and_not_its_end() -> None:
    assert [at_ns for at_ns in (9, 10, 19, 20) if RUN.holds(at_ns)] == [10, 19]


def test_the_ends_of_a_run_are_open_and_stay_open() -> None:
    assert RUN.open_at(RUN) == EVER
    assert TimeRange(12, 25).open_at(RUN) == TimeRange(12)
    assert not TimeRange(12).longer(5).has_end
    assert TimeRange(12, 15).longer(5) == TimeRange(12, 20)


def test_parts_make_up_the_range() -> None:
    assert TimeRange(10, 20).cut(3) == [(10, 13), (13, 16), (16, 20)]
