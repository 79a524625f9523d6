"""A cursor says what the intervals themselves say, for ranges in order."""

from __future__ import annotations

import random

from profd.daemon.store.stepfunction import IntervalCursor, IntervalSet


def test_a_cursor_says_what_the_intervals_say() -> None:
    chance = random.Random(7)
    for _ in range(50):
        cover, at_ns = IntervalSet(), 0
        for _ in range(chance.randint(0, 20)):
            at_ns += chance.randint(0, 50)
            cover.add(at_ns, at_ns + chance.randint(0, 60))
        cursor, from_ns = IntervalCursor(cover), -10
        for _ in range(200):
            from_ns += chance.randint(0, 12)
            to_ns = from_ns + chance.choice((0, 1, 5, 40, 400))
            assert cursor.between(from_ns, to_ns) == cover.between(from_ns, to_ns)


def test_a_cover_of_nothing_covers_nothing() -> None:
    assert IntervalCursor(IntervalSet()).between(0, 10) == 0
