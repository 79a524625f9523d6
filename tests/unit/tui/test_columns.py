from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support import synthetic

from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Grid
from profd.tui.columns import (
    ENOUGH_S,
    FINEST_NS,
    MOST_COLUMNS,
    WIDE_NS,
    Columns,
    Ruler,
    Sums,
    parts_of,
)
from profd.tui.scrub import SPANS_NS

ORIGIN_NS = synthetic.STARTED_NS
MINUTES = 9


@pytest.fixture(autouse=True)
def whole_columns() -> None:
    """Let looks end when they have read enough, which is what is tested here."""


class FakeFile:
    """Reads columns whose sum is their number, each at the same cost, and notes what was asked.

    Each part of them costs something, too.
    """

    def __init__(self, cost_s: float = 0.0, part_s: float = 0.0) -> None:
        self.asked: list[tuple[int, int]] = []
        self.spent_s, self._cost_s, self._part_s = 0.0, cost_s, part_s

    def read(self, grid: Grid, first: int, last: int) -> list[Sums[str]]:
        self.asked.append((first, last))
        self.spent_s += self._cost_s * (last - first) + self._part_s
        return [{"it": column} for column in range(first, last)]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    path = synthetic.write_run(tmp_path / "a.profd", seconds=MINUTES * 60, workers=0)
    with RunReader(path) as reader:
        yield reader


def columns_of(reader: RunReader, file: FakeFile) -> Columns[str]:
    return Columns(reader, file.read, lambda: file.spent_s)


def test_a_column_is_read_once_until_something_of_its_time_is_new(reader: RunReader) -> None:
    file = FakeFile()
    columns = columns_of(reader, file)
    ruler = Ruler(ORIGIN_NS, SECOND_NS, 4)
    first = ruler.first
    assert columns.take(ruler) == [{"it": first + number} for number in range(4)]
    assert file.asked == [(first + 3, first + 4), (first + 1, first + 3), (first, first + 1)]
    file.asked.clear()
    columns.take(Ruler(ORIGIN_NS + SECOND_NS, SECOND_NS, 4))  # moved on
    assert file.asked == [(first + 4, first + 5)]
    file.asked.clear()
    columns.forget(ORIGIN_NS + 3 * SECOND_NS)
    columns.take(ruler)
    assert file.asked == [(first + 3, first + 4)]


def test_wide_columns_are_added_up_from_minutes_that_all_rulers_share(reader: RunReader) -> None:
    file = FakeFile()
    columns = columns_of(reader, file)
    assert columns.take(Ruler(ORIGIN_NS, 3 * MINUTE_NS, 3)) == [{"it": 3}, {"it": 12}, {"it": 21}]
    file.asked.clear()
    assert columns.take(Ruler(ORIGIN_NS, 2 * MINUTE_NS, 2)) == [{"it": 1}, {"it": 5}]
    early = Ruler(ORIGIN_NS - 2 * MINUTE_NS, 2 * MINUTE_NS, 3)
    assert columns.take(early) == [None, {"it": 1}, {"it": 5}]
    assert not file.asked
    columns.forget(ORIGIN_NS + 3 * MINUTE_NS + 1)
    assert columns.take(early) == [None, {"it": 1}, {"it": 5}]
    assert file.asked == [(3, 4)]


def test_a_long_time_is_read_gradually_the_newest_first(reader: RunReader) -> None:
    file = FakeFile(cost_s=ENOUGH_S / 2)
    columns = columns_of(reader, file)
    ruler = Ruler(ORIGIN_NS, MINUTE_NS * 3, 3)
    assert not columns.is_drawn
    assert columns.take(ruler) == [None, None, {"it": 21}]
    shares = [columns.read_share]
    while columns.has_backlog:
        columns.read_on()
        shares.append(columns.read_share)
    assert shares == pytest.approx([3 / 9, 5 / 9, 7 / 9, 1.0])
    assert columns.take(ruler) == [{"it": 3}, {"it": 12}, {"it": 21}]


def test_what_is_not_drawn_is_kept_in_part_and_what_is_drawn_not_read_again(
    reader: RunReader,
) -> None:
    file = FakeFile()
    columns = columns_of(reader, file)
    begin = Ruler(ORIGIN_NS, FINEST_NS, 64)
    columns.take(begin)
    for number in range(64, MOST_COLUMNS + 192, 64):
        later = Ruler(ORIGIN_NS + number * FINEST_NS, FINEST_NS, 64)
        columns.take(later)
        file.asked.clear()
        columns.take(later)
        assert not file.asked
    columns.take(begin)
    assert file.asked


def test_parts_become_larger_although_the_smallest_one_takes_long(reader: RunReader) -> None:
    file = FakeFile(part_s=2 * ENOUGH_S)  # as with a thousand processes
    columns = columns_of(reader, file)
    ruler = Ruler(ORIGIN_NS, SECOND_NS, 64)
    columns.take(ruler)
    while columns.has_backlog:
        columns.read_on()
    lengths = [last - first for first, last in file.asked]
    assert len(lengths) < 16
    assert lengths == sorted(lengths[:-1]) + lengths[-1:]


@pytest.mark.parametrize("cost_s", [ENOUGH_S / 10, 3 * ENOUGH_S])
def test_no_look_takes_much_longer_than_is_enough_or_than_some_columns(
    reader: RunReader, cost_s: float
) -> None:
    file = FakeFile(cost_s)
    columns = columns_of(reader, file)
    columns.take(Ruler(ORIGIN_NS, SECOND_NS, 64))
    looks_s = [file.spent_s]
    while columns.has_backlog:
        columns.read_on()
        looks_s.append(file.spent_s)
    longest_s = max(after - before for before, after in itertools.pairwise([0.0, *looks_s]))
    assert longest_s <= max(3 * ENOUGH_S, 4 * cost_s)


@given(some.integers(0, 10**11), some.integers(1, 10**11), some.integers(10**9, 10**11))
def test_cutting_at_columns_loses_no_time(begin_ns: int, length_ns: int, column_ns: int) -> None:
    grid = Grid(7, column_ns)
    parts = list(parts_of(grid, begin_ns, begin_ns + length_ns))
    assert sum(part_ns for _, part_ns in parts) == length_ns
    assert all(0 < part_ns <= column_ns for _, part_ns in parts)
    first = (begin_ns - 7) // column_ns
    assert [column for column, _ in parts] == list(range(first, first + len(parts)))


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


@given(some.integers(1, 300), some.integers(0, 10**15), some.sampled_from(SPANS_NS))
def test_no_ruler_has_more_columns_than_there_is_room_for_and_wide_ones_are_whole_minutes(
    columns: int, length_ns: int, span_ns: int
) -> None:
    for ruler in (
        Ruler.growing(ORIGIN_NS, ORIGIN_NS + length_ns, columns),
        Ruler.filling(ORIGIN_NS, ORIGIN_NS + length_ns, columns),
        Ruler.moving(span_ns, ORIGIN_NS + length_ns, columns, ORIGIN_NS),
    ):
        assert 1 <= ruler.count <= columns
        if ruler.column_ns >= WIDE_NS:
            assert ruler.column_ns % MINUTE_NS == (ruler.from_ns - ORIGIN_NS) % MINUTE_NS == 0
