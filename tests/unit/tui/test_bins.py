from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from profd.daemon.clock import SECOND_NS
from profd.tui.bins import FINEST_NS, MOST_BINS, Ruler, TimeBins, means_of_sum

ORIGIN_NS = 1_000 * SECOND_NS


def test_columns_before_the_origin_are_empty() -> None:
    bins = TimeBins(ORIGIN_NS, SECOND_NS)
    bins.add("before", ORIGIN_NS - 5 * SECOND_NS, ORIGIN_NS - SECOND_NS)
    bins.add("b", ORIGIN_NS - SECOND_NS, ORIGIN_NS + 1)
    (first,) = bins.columns(Ruler(ORIGIN_NS, SECOND_NS, 1))
    assert {key: weight.length_ns for key, weight in first.items()} == {"b": 1}
    bins.add("a", ORIGIN_NS, ORIGIN_NS + 2 * SECOND_NS)
    for column_ns in (SECOND_NS // 4, SECOND_NS, 2 * SECOND_NS):
        found = bins.columns(
            Ruler(ORIGIN_NS - 2 * SECOND_NS, column_ns, 4 * SECOND_NS // column_ns)
        )
        assert [bool(each) for each in found] == [False] * (len(found) // 2) + [True] * (
            len(found) // 2
        )


@given(some.lists(some.tuples(some.integers(0, 10**13), some.integers(1, 10**11)), max_size=20))
def test_merging_loses_no_time_however_long_the_run(spans: list[tuple[int, int]]) -> None:
    bins = TimeBins(ORIGIN_NS)
    for start_ns, length_ns in spans:
        bins.add("a", ORIGIN_NS + start_ns, ORIGIN_NS + start_ns + length_ns)
    end_ns = ORIGIN_NS + max((start + length for start, length in spans), default=1)
    whole = bins.columns(Ruler(ORIGIN_NS, bins.width_ns * MOST_BINS, 1))[0]
    assert end_ns - ORIGIN_NS <= bins.width_ns * MOST_BINS
    assert sum(weight.length_ns for weight in whole.values()) == sum(length for _, length in spans)


def test_values_are_means_over_time_and_sums_over_keys_for_as_long_as_these_were_there() -> None:
    bins = TimeBins(ORIGIN_NS, SECOND_NS)
    bins.add(1, ORIGIN_NS, ORIGIN_NS + SECOND_NS, 3.0)
    bins.add(1, ORIGIN_NS + SECOND_NS, ORIGIN_NS + 2 * SECOND_NS, 1.0)
    bins.add(2, ORIGIN_NS, ORIGIN_NS + 2 * SECOND_NS, 10.0)
    assert means_of_sum(bins.columns(Ruler(ORIGIN_NS, 2 * SECOND_NS, 2))) == (12.0, None)
    bins = TimeBins(ORIGIN_NS, SECOND_NS)
    bins.add(1, ORIGIN_NS, ORIGIN_NS + SECOND_NS, 4.0)
    for worker in range(2, 6):
        bins.add(
            worker,
            ORIGIN_NS + (worker - 2) * SECOND_NS // 4,
            ORIGIN_NS + (worker - 1) * SECOND_NS // 4,
            1.0,
        )
    assert means_of_sum(bins.columns(Ruler(ORIGIN_NS, SECOND_NS, 2))) == (5.0, None)


def test_columns_double_or_move_as_a_whole() -> None:
    grown = [Ruler.growing(ORIGIN_NS, ORIGIN_NS + seconds * SECOND_NS, 50) for seconds in (5, 6, 7)]
    assert [(one.column_ns / FINEST_NS, one.count) for one in grown] == [(1, 40), (1, 48), (2, 28)]
    widths = [
        Ruler.growing(ORIGIN_NS, ORIGIN_NS + n * 10 * SECOND_NS, 50).column_ns / FINEST_NS
        for n in range(1, 40)
    ]
    assert set(widths) == {2, 4, 8, 16, 32, 64}
    assert widths == sorted(widths)
    first = Ruler.moving(30 * SECOND_NS, ORIGIN_NS, 61)
    later = [
        Ruler.moving(30 * SECOND_NS, ORIGIN_NS + step * SECOND_NS // 10, 61).from_ns
        for step in range(10)
    ]
    assert first.column_ns == SECOND_NS / 2
    assert {at_ns - first.from_ns for at_ns in later} == {0, SECOND_NS // 2}


@given(some.integers(1, 300), some.integers(0, 10**15))
def test_no_ruler_has_more_columns_than_there_is_room_for(columns: int, length_ns: int) -> None:
    for ruler in (
        Ruler.growing(ORIGIN_NS, ORIGIN_NS + length_ns, columns),
        Ruler.filling(ORIGIN_NS, ORIGIN_NS + length_ns, columns),
        Ruler.moving(30 * SECOND_NS, ORIGIN_NS + length_ns, columns),
    ):
        assert 1 <= ruler.count <= columns


def test_bins_that_were_merged_twice_still_lie_at_their_time() -> None:
    bins = TimeBins(ORIGIN_NS, SECOND_NS)
    bins.add("early", ORIGIN_NS, ORIGIN_NS + 8 * SECOND_NS, value=0.5)
    end_ns = ORIGIN_NS + 4 * MOST_BINS * SECOND_NS
    bins.add("late", end_ns - 8 * SECOND_NS, end_ns)
    assert bins.width_ns == 4 * SECOND_NS
    columns = bins.columns(Ruler(ORIGIN_NS, 4 * SECOND_NS, MOST_BINS))
    found = {
        number: {
            key: (weight.length_ns, weight.area / weight.length_ns)
            for key, weight in column.items()
        }
        for number, column in enumerate(columns)
        if column
    }
    early, late = {"early": (4 * SECOND_NS, 0.5)}, {"late": (4 * SECOND_NS, 1.0)}
    assert found == {0: early, 1: early, MOST_BINS - 2: late, MOST_BINS - 1: late}
