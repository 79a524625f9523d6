"""A walk along a cover says what the cover itself says, for ranges in order."""

from __future__ import annotations

import random

from profd.daemon.store.intervals import IntervalSet, Walk


def test_a_walk_says_what_the_cover_says() -> None:
    chance = random.Random(7)
    for _ in range(50):
        cover, at_ns = IntervalSet(), 0
        for _ in range(chance.randint(0, 20)):
            at_ns += chance.randint(0, 50)
            cover.add(at_ns, at_ns + chance.randint(0, 60))
        walk, from_ns = Walk(cover), -10
        for _ in range(200):
            from_ns += chance.randint(0, 12)
            to_ns = from_ns + chance.choice((0, 1, 5, 40, 400))
            assert walk.between(from_ns, to_ns) == cover.between(from_ns, to_ns)


def test_a_cover_of_nothing_covers_nothing() -> None:
    assert Walk(IntervalSet()).between(0, 10) == 0
