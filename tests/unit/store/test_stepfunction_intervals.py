"""How much of a range of time is covered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from profd.daemon.store.stepfunction import IntervalSet

_ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12).map(sorted)


def cover_of(ranges: list[tuple[int, int]]) -> IntervalSet:
    cover = IntervalSet()
    for start, length in ranges:
        cover.add(start, start + length)
    return cover


@given(_ranges, st.integers(-5, 90), st.integers(-5, 90))
def test_each_moment_counts_once(ranges: list[tuple[int, int]], from_ns: int, to_ns: int) -> None:
    covered = {moment for start, length in ranges for moment in range(start, start + length)}
    cover = cover_of(ranges)

    assert cover.length_ns == len(covered)
    assert cover.between(from_ns, to_ns) == len(covered & set(range(from_ns, to_ns)))
    assert (cover.start_ns, cover.end_ns) == ((min(covered), max(covered) + 1) if covered else (None, None))


@given(_ranges)
def test_edges_tell_all_of_it(ranges: list[tuple[int, int]]) -> None:
    cover = cover_of(ranges)

    for at_ns, covered in cover.edges():
        assert cover.until(at_ns) == covered
    assert not cover.edges() or cover.edges()[-1][1] == cover.length_ns
