"""Reads that failed: as py-spy logs them, and what they tell of stacks that are hard to read, by a
simulated reader.
"""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failedreads import Reader
from support.traces import stack

from profd.daemon.clock import SECOND_NS
from profd.daemon.stacks.evidence import MOST_PLACES, TornShares
from profd.daemon.stacks.misreads import cap, with_visits
from profd.daemon.stacks.pyspy import FailedRead, StackChange, read_log, without_log
from profd.daemon.store.records import Stack

ZERO_NS = 1_795_267_341 * SECOND_NS
IDENT = 139979236125568
FAILED = "WARN  py_spy] Failed to get stack trace from 24382: Failed to"
LOG = f"""py-spy> Sampling process 100 times a second for 4 seconds. Press Control-C to exit.

[2026-11-21T13:22:21.405763342Z {FAILED} call get_stack_trace for thread 139979236125568
[2026-11-21T13:22:21.430673338Z {FAILED} copy PyThreadState
Error: Something else
""".encode()


def test_the_log_of_py_spy_is_read_with_its_threads_and_fewer_digits() -> None:
    one, other = read_log(LOG, 500)
    why = f"Failed to call get_stack_trace for thread {IDENT}"
    assert one == FailedRead(ZERO_NS + 405_763_342 - 500, IDENT, why)
    assert other == FailedRead(ZERO_NS + 430_673_338 - 500, None, "Failed to copy PyThreadState")
    assert b"Failed" not in without_log(LOG)
    assert b"Error: Something else" in without_log(LOG)
    (one,) = read_log(
        f"[2026-11-21T13:22:21.4Z {FAILED} call get_stack_trace for thread {'7' * 5000}\n".encode(),
        0,
    )
    assert one.ident is None
    (one,) = read_log(
        f"[2026-11-21T13:22:21.4Z {FAILED} call get_stack_trace for thread 7\n".encode(), 0
    )
    assert (one.at_ns, one.ident) == (ZERO_NS + 400_000_000, 7)


@pytest.mark.parametrize(
    "at", ["2026-99-21T13:22:21.4", "0000-11-21T13:22:21.4", "2026-11-21T99:22:21.4", "yesterday"]
)
def test_a_log_without_a_time_that_can_be_tells_nothing(at: str) -> None:
    assert read_log(f"[{at}Z {FAILED} call get_stack_trace for thread 7\n".encode(), 0) == ()


BUSY, CALM = stack("report", "dumps"), stack("multiply")


def torn_shares(seen: dict[Stack, int], torn: dict[Stack, int]) -> TornShares:
    known = TornShares()
    known.learn(seen, torn)
    return known


def test_where_reads_are_torn_they_fail_and_elsewhere_hardly() -> None:
    known = torn_shares({BUSY: 100, CALM: 100}, {})
    assert known.of(BUSY) == known.of(CALM) == known.of(stack("unseen"))
    known = torn_shares({BUSY: 100, CALM: 100}, {BUSY: 40})
    assert known.of(BUSY) >= 20 * known.of(CALM)
    assert known.of(stack("report", "unseen")) == known.of(BUSY)
    few = torn_shares({BUSY: 100, CALM: 1}, {BUSY: 40})
    assert few.of(BUSY) < 8 * few.of(CALM)
    chain = stack(*"abcdefghijkl")
    short, deep = (
        torn_shares({one: 5, BUSY: 100}, {BUSY: 40}).of(one) for one in (chain[:2], chain)
    )
    assert deep == short


def test_of_a_program_that_makes_up_functions_what_was_seen_often_is_held() -> None:
    known = torn_shares({BUSY: 1_000, CALM: 1_000}, {BUSY: 400})
    before = known.of(BUSY)
    for number in range(30):
        known.learn({stack(f"f{number}", f"g{inner}"): 1 for inner in range(500)}, {})
    assert known.held <= MOST_PLACES + 501
    assert known.of(BUSY) == pytest.approx(before, rel=0.2)
    assert known.of(CALM) < before / 1_000


DEEP, FLAT = stack(*"abcdefghijklmnopqrstuvwxyz" * 8), stack("a")
SEEDS = 4


def errors(stays_us: dict[Stack, float], read_us: dict[Stack, float]) -> tuple[float, float]:
    """Return the mean error of the deep stack's share without and with what failed reads tell."""
    readers = [Reader(stays_us, read_us, seed) for seed in range(SEEDS)]
    before = statistics.mean(one.error(tuple(one.changes), DEEP) for one in readers)
    corrected = (
        with_visits(tuple(one.changes), one.failed_us, one.samples, TornShares()) for one in readers
    )
    return before, statistics.mean(
        one.error(trace, DEEP) for one, trace in zip(readers, corrected, strict=True)
    )


@pytest.mark.parametrize(
    ("flat_us", "deep_us", "read_us", "least", "most"),
    [
        (9_400, 14_100, 2_500, 2.0, 0.6),
        (14_100, 9_400, 2_500, 3.5, 0.6),
        (3_000, 5_000, 2_500, 13.0, 0.6),
    ],
)
def test_a_deep_stack_is_given_the_time_that_failed_reads_take_from_it(
    flat_us: float, deep_us: float, read_us: float, least: float, most: float
) -> None:
    before, after = errors({FLAT: flat_us, DEEP: deep_us}, {FLAT: 20, DEEP: read_us})
    assert before < -least
    assert abs(after) < most


@pytest.mark.parametrize("turns", [(24_000, 36_000), (60_000, 40_000), (8_000, 9_000)])
def test_a_restless_stack_is_given_the_time_that_failed_reads_take_from_it(
    turns: tuple[float, float],
) -> None:
    calm, restless = stack("multiply"), stack("report")
    known = TornShares()
    known.learn({calm: 200, restless: 200}, {restless: 50})
    stays_us, read_us = (
        dict(zip((calm, restless), turns, strict=True)),
        {calm: 100.0, restless: 0.0},
    )
    readers = [Reader(stays_us, read_us, seed, {restless: 0.5}) for seed in range(SEEDS)]
    before = statistics.mean(one.error(tuple(one.changes), restless) for one in readers)
    changed = [
        with_visits(tuple(one.changes), one.failed_us, one.samples, known) for one in readers
    ]
    after = statistics.mean(
        one.error(trace, restless) for one, trace in zip(readers, changed, strict=True)
    )
    assert before < -8.0
    assert abs(after) < 1.25


@given(lengths=st.lists(st.integers(0, 10**6), min_size=1, max_size=40), share=st.floats(0, 1))
def test_lengths_are_cut_to_what_they_may_add_up_to(lengths: list[int], share: float) -> None:
    most = cap(lengths, share * sum(lengths))
    assert sum(min(length, most) for length in lengths) == pytest.approx(
        share * sum(lengths), abs=0.01
    )


def test_lengths_that_are_too_short_or_as_restless_as_their_neighbors_stay() -> None:
    assert cap([3, 5], 9) == 5
    calm, restless = stack("multiply"), stack("report")
    known = TornShares()
    known.learn({calm: 200, restless: 200}, {restless: 50, calm: 40})
    reader = Reader(
        {calm: 24_000, restless: 36_000}, {calm: 100.0, restless: 0.0}, 1, {restless: 0.5}
    )
    assert with_visits(tuple(reader.changes), reader.failed_us, reader.samples, known) == tuple(
        reader.changes
    )


def test_stacks_of_like_depth_and_long_stays_are_left_as_they_were() -> None:
    other = stack(*reversed("abcdefghijklmnopqrstuvwxyz"))
    reader = Reader({other: 9_400, DEEP: 14_100}, {other: 20, DEEP: 2_500}, 1)
    assert reader.failed_us
    assert with_visits(
        tuple(reader.changes), reader.failed_us, reader.samples, TornShares()
    ) == tuple(reader.changes)
    before, after = errors({FLAT: 200_000, DEEP: 300_000}, {FLAT: 20, DEEP: 2_500})
    assert abs(before) < 0.3
    assert abs(after) < 0.3
    changes = (
        StackChange(0, DEEP),
        StackChange(100_000, FLAT),
        StackChange(5_000_000, DEEP),
        StackChange(5_100_000, ()),
    )
    assert (
        with_visits(changes, list(range(1_000_000, 4_000_000, 100_000)), 510, TornShares())
        == changes
    )


@given(
    times=st.lists(st.integers(0, 10**6), min_size=2, max_size=20, unique=True).map(sorted),
    failed=st.lists(st.integers(-(10**4), 2 * 10**6), max_size=40).map(sorted),
)
def test_what_was_seen_stays_where_it_was_seen(times: list[int], failed: list[int]) -> None:
    changes = [StackChange(at_us, (FLAT, DEEP)[number % 2]) for number, at_us in enumerate(times)]
    found = with_visits(tuple(changes), failed, 100, TornShares())
    assert all(one in found for one in changes)
    assert all(one.at_us <= other.at_us for one, other in itertools.pairwise(found))
    added = [one for one in found if one not in changes]
    assert {one.at_us for one in added if one.frames == DEEP} <= set(failed)
    assert (found[0], found[-1]) == (changes[0], changes[-1])
