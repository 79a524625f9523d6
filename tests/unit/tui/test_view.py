"""Ranges of time and their names."""

from __future__ import annotations

import pytest

from profd.daemon.clock import SECOND_NS
from profd.tui.view import Range, View, span_name


def test_what_is_near_differs_by_a_tenth_of_the_other_at_each_end() -> None:
    whole = Range(1000, 2000)
    assert Range(1100, 2100).is_near(whole)
    assert not Range(1101, 2000).is_near(whole)
    assert not Range(1000, 2101).is_near(whole)
    # Of what is short a tenth is less.
    assert not whole.is_near(Range(1000, 1500))


@pytest.mark.parametrize(
    ("asked", "inside"),
    [
        (Range(12, 18), Range(12, 18)),
        (Range(0, 15), Range(10, 15)),
        (Range(15, 99), Range(15, 20)),
        (Range(0, 99), Range(10, 20)),
        (Range(0, 5), Range(10, 11)),
        (Range(50, 60), Range(19, 20)),
        (Range(15, 15), Range(15, 16)),
    ],
)
def test_within_another_at_least_a_nanosecond_is_left(asked: Range, inside: Range) -> None:
    assert asked.within(Range(10, 20)) == inside


@pytest.mark.parametrize(
    ("seconds", "name"), [(30, "30 s"), (120, "2 min"), (150, "2 min 30 s"), (3600, "1 h"), (5400, "1 h 30 min")]
)
def test_a_span_is_named_without_what_is_zero(seconds: int, name: str) -> None:
    assert span_name(seconds * SECOND_NS) == name


def test_a_view_is_named_by_what_it_shows() -> None:
    minute = 60 * SECOND_NS
    assert View().name == "whole run"
    assert View(span_ns=minute).name == "last 1 min"
    assert View(span_ns=minute, end_ns=5).name == "1 min"
    assert View().is_everything
    assert not View(span_ns=1).is_everything
    assert not View(chosen=Range(0, 1)).is_everything
