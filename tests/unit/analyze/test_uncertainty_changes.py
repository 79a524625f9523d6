from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from support import synthetic, unevensamples

from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.uncertainty import Reads, Transitions, TransitionsSeen, take_transitions, together
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow

TEN_MS = 10 * MILLISECOND_NS


def rows(stacks: str, *, thread: int = 1, lasts_ns: int = TEN_MS, late_ns: int = 0) -> list[IntervalRow]:
    """Return an interval a letter, each of one sample."""
    starts = itertools.count(late_ns, lasts_ns)
    return [
        IntervalRow(start, lasts_ns, thread, ord(stack), 1) for start, stack in zip(starts, list(stacks), strict=False)
    ]


def changes_in(*threads: Iterable[IntervalRow]) -> TransitionsSeen:
    changes = Transitions()
    for row in sorted(itertools.chain(*threads), key=lambda row: row.start_ns):
        changes.add(row)
    return changes.take()


def moment(*changes: str) -> tuple[tuple[int, int], ...]:
    return tuple((ord(change[0]), ord(change[1])) for change in changes)


def test_a_change_leaves_the_squared_distance_of_samples_open() -> None:
    seen = changes_in(rows("aabbab"))

    assert seen.squares == {moment("ab"): 2 * TEN_MS**2, moment("ba"): TEN_MS**2}
    assert seen.open_ns2 == TEN_MS**2
    seen = changes_in(rows("aab"), rows("xyy", thread=2, late_ns=20_000), rows("ppq", thread=3, late_ns=40_000))

    assert set(seen.squares) == {moment("xy"), moment("ab", "pq")}
    fast, slow = rows("ab" * 200), rows("cd" * 200, lasts_ns=4 * TEN_MS, late_ns=400 * TEN_MS)
    squares = changes_in(fast, slow).squares

    assert squares[moment("ab")] == pytest.approx(200 * TEN_MS**2)
    assert squares[moment("cd")] == pytest.approx(200 * (4 * TEN_MS) ** 2)


def test_what_was_not_recorded_or_dropped_is_no_change() -> None:
    late = [
        IntervalRow(row.start_ns + SECOND_NS, row.duration_ns, row.thread, row.stack, row.samples) for row in rows("bb")
    ]

    assert changes_in(rows("aa"), late).squares == {}
    assert changes_in([row for row in rows("a?b") if row.stack != ord("?")]).squares == {moment("ab"): TEN_MS**2}


def test_what_was_taken_is_not_taken_again_and_weights_are_squared() -> None:
    changes = Transitions()
    for row in rows("ab"):
        changes.add(row)

    assert changes.take().squares
    assert not changes.take().squares
    seen = TransitionsSeen({moment("ab"): 5.0}, 1.0)

    both = together({1: seen, 2: seen}, {1: 1.0, 2: 3.0})

    assert both == TransitionsSeen({moment("ab"): 50.0}, 10.0)


def test_changes_are_those_of_the_selection(tmp_path: Path) -> None:
    with RunReader(unevensamples.write_run(tmp_path / "a.profd")) as reader:
        process = next(iter(reader.processes))
        of_main = take_transitions(reader, MAIN_THREADS)

        assert list(of_main) == [process]
        assert sum(of_main[process].squares.values()) == pytest.approx((4 * TEN_MS) ** 2)
        # The workers never change: what lies between their turns is not known.
        assert not any(seen.squares for key, seen in take_transitions(reader, Selection()).items() if key != process)
        before = Selection(to_ns=synthetic.STARTED_NS + 10 * SECOND_NS)
        assert not take_transitions(reader, before)[process].squares


def test_changes_know_how_many_of_the_reads_around_them_failed(tmp_path: Path) -> None:
    failing_ns = synthetic.STARTED_NS + 4 * SECOND_NS
    failing = synthetic.recording(synthetic.MAIN, failing_ns, (), duration_ns=4 * SECOND_NS)
    also = [msgspec.structs.replace(failing, errors=200)]
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=4, also=also)) as reader:

        def reads(from_s: float, to_s: float | None = None) -> Reads:
            to_ns = None if to_s is None else synthetic.STARTED_NS + int(to_s * SECOND_NS)
            within = Selection(from_ns=synthetic.STARTED_NS + int(from_s * SECOND_NS), to_ns=to_ns)
            return next((row.reads for row in take_transitions(reader, within).values()), Reads())

        whole = take_transitions(reader, MAIN_THREADS)[1].reads
        assert (whole.failed, whole.due) == (200, 800.0)
        assert reads(0, 4) == Reads(0, 400)
        inside = {row.process: row for row in reader.reads(failing_ns + SECOND_NS, failing_ns + 2 * SECOND_NS)}
        assert (inside[1].failed, inside[1].due) == (200, 400.0)
        assert not reader.reads(failing_ns + 4 * SECOND_NS)


def test_of_a_long_run_a_part_counts_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=60)) as reader:
        whole = take_transitions(reader, MAIN_THREADS)[1]
        monkeypatch.setattr("profd.daemon.analyze.uncertainty.LOOKED_AT_NS", 30 * SECOND_NS)
        monkeypatch.setattr("profd.daemon.analyze.selection._SLICES", 6)
        part = take_transitions(reader, MAIN_THREADS)[1]

    assert sum(part.squares.values()) == pytest.approx(sum(whole.squares.values()), rel=0.1)
    assert part.open_ns2 == pytest.approx(2 * whole.open_ns2)
