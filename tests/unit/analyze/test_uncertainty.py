"""Errors of shares: known answers, and that intervals hold the truth as often as they say."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest
from support import synthetic, unevensamples

from profd.daemon.analyze.confidence import CONFIDENCE_95, is_hint
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.uncertainty import (
    NO_READS,
    Reads,
    ShareVariance,
    Transitions,
    TransitionsSeen,
    take_transitions,
    together,
)
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow
from profd.daemon.timerange import TimeRange

A, B, C = 1, 2, 3
UNSELECTED = 9


def doubt_of(
    squares: dict[tuple[tuple[int, int], ...], float],
    open_ns2: float = 1.0,
    reads: Reads = NO_READS,
) -> ShareVariance[str]:
    states = {A: frozenset("ax"), B: frozenset("bx"), C: frozenset("c")}
    seen = TransitionsSeen(squares, open_ns2, reads)
    return ShareVariance(seen, lambda stack: states.get(stack, frozenset()))


def test_the_variance_is_the_changes_of_a_state_and_one_more() -> None:
    doubt = doubt_of({((A, B),): 8.0, ((B, C),): 3.0, ((C, A),): 4.0})

    assert doubt.standard_error("a", 0.5, 10) == pytest.approx(math.sqrt(8 + 4 + 1) / 10)
    assert doubt.standard_error("x", 0.5, 10) == pytest.approx(math.sqrt(3 + 4 + 1) / 10)
    doubt = doubt_of(
        {((UNSELECTED, UNSELECTED + 1),): 5.0, ((A, UNSELECTED), (UNSELECTED, A)): 5.0}
    )

    assert doubt.standard_error("a", 0.5, 10) == pytest.approx(math.sqrt(1) / 10)
    assert doubt_of({}, open_ns2=0.0).standard_error("a", 0.5, 10) == 1.0
    assert doubt_of({((A, B),): 8.0}).standard_error("a", 0.5, 0) == 1.0
    assert doubt_of({((A, B),): 800.0}).standard_error("a", 0.5, 1) == 1.0


def test_threads_that_change_the_selection_at_once_err_together() -> None:
    same, opposite = ((A, B), (A, B)), ((A, B), (B, A))

    assert doubt_of({same: 1.0}).standard_error("a", 0.5, 10) == pytest.approx(
        math.sqrt(4 + 1) / 10
    )
    assert doubt_of({opposite: 1.0}).standard_error("a", 0.5, 10) == pytest.approx(
        math.sqrt(1) / 10
    )
    doubt = doubt_of({((A, UNSELECTED), (B, UNSELECTED)): 1.0})

    assert doubt.standard_error("a", 0.5, 10) == pytest.approx(
        math.sqrt((1 - 0.5 * 2) ** 2 + 1) / 10
    )
    assert doubt.standard_error("x", 1.0, 10) == pytest.approx(math.sqrt(1) / 10)


def test_where_the_whole_is_uncertain_too_its_error_is_taken_off() -> None:
    # All that is selected begins and ends with A: its share of it is one for sure.
    doubt = doubt_of({((UNSELECTED, A),): 5.0, ((A, UNSELECTED),): 5.0})

    assert doubt.standard_error("a", 1.0, 10) == pytest.approx(math.sqrt(1) / 10)
    assert doubt.standard_error("a", 0.5, 10) == pytest.approx(math.sqrt(10 * 0.25 + 1) / 10)


def test_what_failed_reads_would_have_shown_is_a_guess_that_no_time_makes_better() -> None:
    def error(failed: float, whole_ns: float, share: float = 0.5) -> float:
        doubt = doubt_of({((A, B),): whole_ns}, 1.0, Reads(failed, 100.0))
        return doubt.standard_error("a", share, whole_ns)

    assert error(0, 1e12) < 1e-5
    assert 0.01 < error(25, 1e12) < 0.04
    assert error(50, 1e12) == pytest.approx(4 * error(25, 1e12), rel=0.001)
    assert error(9, 100) == pytest.approx(error(0, 100), rel=0.01), (
        "few failed reads say hardly less"
    )
    assert error(50, 1e12, share=1.0) < 1e-5, "a share of everything is everything"


def test_processes_add_up_by_their_weights_and_failed_reads_by_their_time() -> None:
    changes = {1: TransitionsSeen(reads=Reads(10, 100)), 2: TransitionsSeen(reads=Reads(0, 100))}
    assert together(changes, {1: 3.0, 2: 1.0}).reads.failed_share == pytest.approx(30 / 400)
    assert (Reads().failed_share, Reads(9, 3).failed_share) == (0, 1)
    one = TransitionsSeen({((A, B),): 8.0}, 1.0)
    assert together({1: one, 2: one}, {1: 1.0, 2: 2.0}) == TransitionsSeen(
        {((A, B),): 8.0 + 32.0}, 1.0 + 4.0
    )


def test_a_share_within_its_interval_is_a_hint() -> None:
    assert is_hint(0.01, 0.01)
    assert not is_hint(0.5, 0.01)


Places = Callable[[float], int]


def slow(at_s: float) -> int:
    return A if at_s % 0.7 < 0.4 else B


def fast(_: float) -> int:
    return A if random.random() < 0.3 else C


@pytest.mark.parametrize(("path", "truth"), [(slow, 4 / 7), (fast, 0.3)])
def test_intervals_hold_the_truth_as_often_as_they_say(path: Places, truth: float) -> None:
    random.seed(5)
    held = sum(holds(path, truth) for _ in range(400))

    # Three standard deviations of 400 cases of 95 %.
    assert 0.917 <= held / 400 <= 0.983


def holds(path: Places, truth: float) -> bool:
    """Sample ten rounds of 0.7 s at 100 Hz, and say whether the interval holds the truth."""
    times = [0.0]
    while times[-1] < 7.0:
        times.append(times[-1] + random.expovariate(100))
    times[-1] = 7.0
    stacks = [path(at_s) for at_s in times]
    spent_s = sum(
        end - start
        for start, end, stack in zip(times, times[1:], stacks, strict=False)
        if stack == A
    )
    changes = sum(stacks[i] != stacks[i - 1] for i in range(1, len(stacks) - 1))
    square = (7.0 / (len(times) - 1)) ** 2
    error = doubt_of({((A, C),): changes * square}, square).standard_error("a", spent_s / 7, 7.0)
    return abs(spent_s / 7 - truth) <= CONFIDENCE_95 * error


TEN_MS = 10 * MILLISECOND_NS


def rows(
    stacks: str, *, thread: int = 1, lasts_ns: int = TEN_MS, late_ns: int = 0
) -> list[IntervalRow]:
    """Return an interval a letter, each of one sample."""
    starts = itertools.count(late_ns, lasts_ns)
    return [
        IntervalRow(start, lasts_ns, thread, ord(stack), 1)
        for start, stack in zip(starts, list(stacks), strict=False)
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
    seen = changes_in(
        rows("aab"), rows("xyy", thread=2, late_ns=20_000), rows("ppq", thread=3, late_ns=40_000)
    )

    assert set(seen.squares) == {moment("xy"), moment("ab", "pq")}
    fast, slow = rows("ab" * 200), rows("cd" * 200, lasts_ns=4 * TEN_MS, late_ns=400 * TEN_MS)
    squares = changes_in(fast, slow).squares

    assert squares[moment("ab")] == pytest.approx(200 * TEN_MS**2)
    assert squares[moment("cd")] == pytest.approx(200 * (4 * TEN_MS) ** 2)


def test_what_was_not_recorded_or_dropped_is_no_change() -> None:
    assert changes_in(rows("aa"), rows("bb", late_ns=SECOND_NS)).squares == {}
    assert changes_in([row for row in rows("a?b") if row.stack != ord("?")]).squares == {
        moment("ab"): TEN_MS**2
    }


def test_what_was_taken_is_not_taken_again() -> None:
    changes = Transitions()
    for row in rows("ab"):
        changes.add(row)

    assert changes.take().squares
    assert not changes.take().squares


def test_changes_are_those_of_the_selection(tmp_path: Path) -> None:
    with RunReader(unevensamples.write_run(tmp_path / "a.profd")) as reader:
        process = next(iter(reader.processes))
        of_main = take_transitions(reader, MAIN_THREADS)

        assert list(of_main) == [process]
        assert sum(of_main[process].squares.values()) == pytest.approx((4 * TEN_MS) ** 2)
        # The workers never change: what lies between their turns is not known.
        assert not any(
            seen.squares
            for key, seen in take_transitions(reader, Selection()).items()
            if key != process
        )
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
        inside = {
            row.process: row
            for row in reader.reads(TimeRange(failing_ns + SECOND_NS, failing_ns + 2 * SECOND_NS))
        }
        assert (inside[1].failed, inside[1].due) == (200, 400.0)
        assert not reader.reads(TimeRange(failing_ns + 4 * SECOND_NS))


def test_of_a_long_run_a_part_counts_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=60)) as reader:
        whole = take_transitions(reader, MAIN_THREADS)[1]
        monkeypatch.setattr("profd.daemon.analyze.uncertainty.LOOKED_AT_NS", 30 * SECOND_NS)
        monkeypatch.setattr("profd.daemon.analyze.selection._SLICES", 6)
        part = take_transitions(reader, MAIN_THREADS)[1]

    assert sum(part.squares.values()) == pytest.approx(sum(whole.squares.values()), rel=0.1)
    assert part.open_ns2 == pytest.approx(2 * whole.open_ns2)
