"""Reads that fail tell of deep stacks: known answers from a simulated reader, and lines as py-spy logs them."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import Stack, stack

from profd.daemon.clock import MICROSECOND_NS, SECOND_NS
from profd.daemon.collect.stacks.chrometrace import Change, ThreadTrace
from profd.daemon.collect.stacks.failedreads import FailedRead, as_failed, read_log, without_log

ZERO_NS = 1_795_267_341 * SECOND_NS
IDENT = 139979236125568
DEEP, FLAT = stack(*"abcdefghijklmnopqrstuvwxyz" * 8), stack("a")
FAILED = "WARN  py_spy] Failed to get stack trace from 24382: Failed to"
LOG = f"""py-spy> Sampling process 100 times a second for 4 seconds. Press Control-C to exit.

[2026-11-21T13:22:21.405763342Z {FAILED} call get_stack_trace for thread 139979236125568
[2026-11-21T13:22:21.430673338Z {FAILED} copy PyThreadState
Error: Something else
""".encode()


class Reader:
    """Reads a program that alternates between stacks; a read fails where its stack ends meanwhile."""

    def __init__(self, stays_us: dict[Stack, float], read_us: dict[Stack, float], seed: int) -> None:
        self._chance = random.Random(seed)
        self.samples = 0
        self.failed: list[FailedRead] = []
        self.spent_us = dict.fromkeys(stays_us, 0.0)
        self._changes: list[Change] = []
        self._read_us = read_us
        stays = ((one, self._chance.uniform(0.9, 1.1) * stay) for one, stay in itertools.cycle(stays_us.items()))
        at_us, read_at_us = 0.0, self._chance.expovariate(1e-4)
        for one, stay_us in stays:
            self.spent_us[one] += stay_us
            while read_at_us < at_us + stay_us:
                self._read(one, read_at_us, at_us + stay_us)
                read_at_us += self._chance.expovariate(1e-4)
            at_us += stay_us
            if at_us > 60e6:
                break
        self._changes.append(Change(round(at_us), ()))
        self.trace = ThreadTrace(IDENT, 1, "MainThread", tuple(self._changes))

    def _read(self, one: Stack, at_us: float, until_us: float) -> None:
        if at_us + self._read_us[one] > until_us:
            self.failed.append(FailedRead(ZERO_NS + round(at_us) * MICROSECOND_NS, IDENT))
            return
        self.samples += 1
        if not self._changes or self._changes[-1].frames != one:
            self._changes.append(Change(round(at_us), one))

    def error(self, trace: ThreadTrace, one: Stack) -> float:
        """Return by how many points the share of a stack is off."""
        told = sum(after.at_us - now.at_us for now, after in itertools.pairwise(trace.changes) if now.frames == one) / (
            trace.changes[-1].at_us - trace.changes[0].at_us
        )
        return 100 * (told - self.spent_us[one] / sum(self.spent_us.values()))


def errors(stays_us: dict[Stack, float], read_us: dict[Stack, float]) -> tuple[float, float]:
    """Return the mean error of the deep stack's share without and with what failed reads tell."""
    readers = [Reader(stays_us, read_us, seed) for seed in range(20)]
    before = statistics.mean(one.error(one.trace, DEEP) for one in readers)
    corrected = (as_failed([one.trace], one.failed, ZERO_NS, one.samples)[0] for one in readers)
    return before, statistics.mean(one.error(trace, DEEP) for one, trace in zip(readers, corrected, strict=True))


@pytest.mark.parametrize(
    ("flat_us", "deep_us", "read_us", "least", "most"),
    [(9_400, 14_100, 2_500, 2.0, 0.9), (14_100, 9_400, 2_500, 3.5, 0.6), (3_000, 5_000, 2_500, 13.0, 4.0)],
)
def test_a_deep_stack_is_given_the_time_that_failed_reads_take_from_it(
    flat_us: float, deep_us: float, read_us: float, least: float, most: float
) -> None:
    before, after = errors({FLAT: flat_us, DEEP: deep_us}, {FLAT: 20, DEEP: read_us})
    assert before < -least
    assert abs(after) < most


def test_stacks_of_like_depth_are_left_as_they_were() -> None:
    other = stack(*reversed("abcdefghijklmnopqrstuvwxyz"))
    reader = Reader({other: 9_400, DEEP: 14_100}, {other: 20, DEEP: 2_500}, 1)
    assert reader.failed
    assert as_failed([reader.trace], reader.failed, ZERO_NS, reader.samples) == [reader.trace]


def test_long_stays_are_as_true_as_before() -> None:
    before, after = errors({FLAT: 200_000, DEEP: 300_000}, {FLAT: 20, DEEP: 2_500})
    assert abs(before) < 0.3
    assert abs(after) < 0.3


def test_what_fails_far_from_any_deep_stack_was_in_none() -> None:
    changes = Change(0, DEEP), Change(100_000, FLAT), Change(5_000_000, DEEP), Change(5_100_000, ())
    trace = ThreadTrace(IDENT, 1, "MainThread", changes)
    reads = [FailedRead(ZERO_NS + at * MICROSECOND_NS, IDENT) for at in range(1_000_000, 4_000_000, 100_000)]
    assert as_failed([trace], reads, ZERO_NS, 510) == [trace]


@given(
    times=st.lists(st.integers(0, 10**6), min_size=2, max_size=20, unique=True).map(sorted),
    failed=st.lists(st.integers(-(10**4), 2 * 10**6), max_size=40).map(sorted),
)
def test_what_was_seen_stays_where_it_was_seen(times: list[int], failed: list[int]) -> None:
    changes = [Change(at_us, (FLAT, DEEP)[number % 2]) for number, at_us in enumerate(times)]
    trace = ThreadTrace(IDENT, 1, "MainThread", tuple(changes))
    reads = [FailedRead(ZERO_NS + at_us * MICROSECOND_NS, IDENT) for at_us in failed]
    found = as_failed([trace], reads, ZERO_NS, 100)[0].changes
    assert all(one in found for one in changes)
    assert all(one.at_us <= other.at_us for one, other in itertools.pairwise(found))
    added = [one for one in found if one not in changes]
    assert {one.at_us for one in added if one.frames == DEEP} <= set(failed)
    assert (found[0], found[-1]) == (changes[0], changes[-1])


def test_what_failed_at_another_thread_moves_nothing() -> None:
    reader = Reader({FLAT: 9_400, DEEP: 14_100}, {FLAT: 20, DEEP: 2_500}, 1)
    others = [
        FailedRead(one.at_ns, other) for one, other in zip(reader.failed, itertools.cycle((7, None)), strict=False)
    ]
    assert as_failed([reader.trace], others, ZERO_NS, reader.samples) == [reader.trace]


def test_the_log_of_py_spy_is_read() -> None:
    one, other = read_log(LOG, 500)
    assert one == FailedRead(ZERO_NS + 405_763_342 - 500, IDENT)
    assert other == FailedRead(ZERO_NS + 430_673_338 - 500, None)
    assert b"Failed" not in without_log(LOG)
    assert b"Error: Something else" in without_log(LOG)


@pytest.mark.parametrize("at", ["2026-99-21T13:22:21.4", "0000-11-21T13:22:21.4", "2026-11-21T99:22:21.4", "yesterday"])
def test_a_log_without_a_time_that_can_be_tells_nothing(at: str) -> None:
    assert read_log(f"[{at}Z {FAILED} call get_stack_trace for thread 7\n".encode(), 0) == ()


def test_a_thread_of_no_possible_number_is_not_known() -> None:
    (one,) = read_log(f"[2026-11-21T13:22:21.4Z {FAILED} call get_stack_trace for thread {'7' * 5000}\n".encode(), 0)
    assert one.ident is None
