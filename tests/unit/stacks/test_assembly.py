"""A recording made into a record: nothing is lost, doubled or made up between the trace and the run
file.
"""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.traces import MAIN_TID, ZERO_NS, ThreadTrace, raw_recording, stack

from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS
from profd.daemon.stacks import pyspy
from profd.daemon.stacks.assembly import Threads, apportion, assemble
from profd.daemon.stacks.pyspy import FailedRead, RawRecording
from profd.daemon.store.records import Frame, Identity, RecordingTaken, Stack
from profd.daemon.timerange import EVER, TimeRange

TARGET = Identity(MAIN_TID, 1000)
FUNCTIONS = ("a", "b", "c")
WAITING = (
    Frame("Thread._bootstrap", "/usr/lib/python3.11/threading.py", 995),
    Frame("wait", "w.py", 3),
)
# (length in microseconds, function) of one stay after the other
stays = st.lists(
    st.tuples(st.integers(1, 50_000), st.sampled_from(FUNCTIONS)), min_size=1, max_size=30
)


def thread_of(stays: list[tuple[int, str]], start_us: int = 0) -> ThreadTrace:
    """Return a thread with these stays one after the other.

    Neighbors in one stack are one change, as py-spy writes.
    """
    changes: list[tuple[int, Stack]] = []
    at_us = start_us
    for length_us, function in stays:
        if not changes or changes[-1][1] != stack(function):
            changes.append((at_us, stack(function)))
        at_us += length_us
    return ThreadTrace(changes, at_us)


def assembled(
    raw: RawRecording,
    identity: Identity,
    rate_hz: int,
    keep: TimeRange,
    threads: Threads | None = None,
) -> RecordingTaken:
    """Return the record of a recording that has read all the time."""
    (record,) = assemble(raw, identity, rate_hz, keep, threads)
    return record


def spans_of(record: RecordingTaken) -> list[tuple[int, int, Stack]]:
    return [
        (interval.start_ns, interval.start_ns + interval.duration_ns, record.stacks[interval.stack])
        for thread in record.threads
        for interval in thread.intervals
    ]


def test_a_failed_read_is_given_to_the_thread_that_it_was_of() -> None:
    deep, flat = stack(*(f"f{depth}" for depth in range(200))), stack("flat")
    turns = [(at_us, deep if at_us % 20_000 else flat) for at_us in range(0, 1_000_000, 10_000)]
    main, other = (
        ThreadTrace(turns, 1_000_000),
        ThreadTrace(turns, 1_000_000, "thread (77): Thread-1", 0x7F11),
    )
    raw = raw_recording(main, other, samples=200)
    missed = [
        FailedRead(ZERO_NS + at_us * MICROSECOND_NS, main.ident)
        for at_us in range(5_000, 1_000_000, 20_000)
    ]
    found = assembled(msgspec.structs.replace(raw, failed=tuple(missed)), TARGET, 100, EVER).threads
    assert len(found[0].intervals) > len(turns)
    assert [len(thread.intervals) for thread in assembled(raw, TARGET, 100, EVER).threads] == [
        len(turns)
    ] * 2
    assert len(found[1].intervals) == len(turns)


@pytest.mark.parametrize(
    "is_current", [True, False], ids=["the process goes on", "the process has ended"]
)
def test_reads_that_fail_as_a_process_ends_say_nothing_of_what_it_did(is_current: bool) -> None:
    deep, flat = stack(*(f"f{depth}" for depth in range(200))), stack("flat")
    turns = [(at_us, deep if at_us % 20_000 else flat) for at_us in range(0, 500_000, 10_000)]
    torn = stack("no root")[1:]
    last = ThreadTrace(
        [*turns, (500_000, flat), *((at_us, torn) for at_us in (900_000,) if not is_current)],
        1_000_000,
    )
    missed = [
        FailedRead(ZERO_NS + at_us * MICROSECOND_NS, last.ident)
        for at_us in range(605_000, 1_000_000, 20_000)
    ]
    raw = msgspec.structs.replace(raw_recording(last, samples=100), failed=tuple(missed))
    found = assembled(raw, TARGET, 100, EVER, Threads({MAIN_TID: MAIN_TID}, is_current=is_current))
    in_the_end = {
        frames
        for start_ns, _, frames in spans_of(found)
        if start_ns > ZERO_NS + 490_000 * MICROSECOND_NS
    }
    assert in_the_end == ({deep, flat} if is_current else {flat})


@pytest.mark.parametrize(
    ("ending_ms", "is_current"),
    [(10, True), (10, False), (300, True)],
    ids=["a torn read", "the process has ended", "it still ends"],
)
def test_what_python_calls_as_it_ends_is_no_inner_part_of_another_stack(
    ending_ms: int, is_current: bool
) -> None:
    # As torch ends: its handler imports a module, and then there are no frames for as long as
    # modules are unloaded.
    imports, work = stack("outer", "load", "exec_module"), stack("work")
    turns = [(at_us, work if at_us % 20_000 else imports) for at_us in range(0, 500_000, 10_000)]
    ending = [(520_000, imports[1:]), *([(530_000, ())] if ending_ms > 10 else [])]
    last = ThreadTrace([*turns, (510_000, work), *ending], (520 + ending_ms) * 1000)
    threads = Threads({MAIN_TID: MAIN_TID}, is_current=is_current)
    found = assembled(raw_recording(last, samples=52 + ending_ms // 10), TARGET, 100, EVER, threads)
    assert spans_of(found)[-1][2] == (imports if is_current and ending_ms == 10 else work)


def test_threads_that_come_and_go_leave_no_frames_behind() -> None:
    def held(ident: int) -> int:
        turns = [(0, stack("work")), (5_000, stack("wait"))]
        assembled(
            raw_recording(
                ThreadTrace(turns, 10_000, f"thread ({ident}): worker", ident), samples=1
            ),
            TARGET,
            100,
            EVER,
        )
        return pyspy._frame.cache_info().currsize

    assert held(71) == held(72)


@given(st.integers(0, 5000), st.lists(st.integers(0, 10**10), max_size=40))
def test_shares_add_up_and_none_is_negative_or_off_by_a_whole_sample(
    total: int, lengths: list[int]
) -> None:
    shares = apportion(total, lengths)
    assert sum(shares) == (total if sum(lengths) else 0)
    for share, length in zip(shares, lengths, strict=True):
        assert share >= 0
        assert not sum(lengths) or abs(share - total * length / sum(lengths)) <= 1.000001


def test_many_short_intervals_are_not_rounded_away() -> None:
    assert sum(apportion(100, [1] * 300)) == 100
    assert max(apportion(100, [1] * 300)) == 1
    assert apportion(1, [3, 1]) == [1, 0]
    assert apportion(1, [1, 3]) == [0, 1]


@given(stays, st.integers(1, 400))
def test_a_recording_is_kept_whole(stays: list[tuple[int, str]], samples: int) -> None:
    record = assembled(raw_recording(thread_of(stays), samples=samples), TARGET, 100, EVER)
    length_ns = sum(length for length, _ in stays) * MICROSECOND_NS
    assert (record.start_ns, record.end_ns) == (ZERO_NS, ZERO_NS + length_ns)
    assert (record.samples, record.torn) == (samples, 0)
    assert (
        sum(interval.samples for thread in record.threads for interval in thread.intervals)
        == samples
    )
    assert sum(end - start for start, end, _ in spans_of(record)) == length_ns


@given(stays, stays, st.integers(0, 200), st.data())
def test_two_recordings_cut_at_a_time_lose_and_double_nothing(
    before: list[tuple[int, str]], after: list[tuple[int, str]], zero_us: int, data: st.DataObject
) -> None:
    end_us = sum(length for length, _ in before)
    zero_us = min(zero_us, end_us - 1)
    after_end_us = zero_us + sum(length for length, _ in after)
    cut_us = data.draw(st.integers(zero_us, max(min(end_us, after_end_us), zero_us)))
    cut_ns = ZERO_NS + cut_us * MICROSECOND_NS
    first = assembled(raw_recording(thread_of(before)), TARGET, 100, TimeRange(to_ns=cut_ns))
    second_zero_ns = ZERO_NS + zero_us * MICROSECOND_NS
    second = assembled(
        raw_recording(thread_of(after), zero_ns=second_zero_ns), TARGET, 100, TimeRange(cut_ns)
    )
    spans = sorted(span for span in spans_of(first) + spans_of(second))
    assert spans[0][0] == ZERO_NS
    assert spans[-1][1] == max(cut_ns, second_zero_ns + (after_end_us - zero_us) * MICROSECOND_NS)
    for (_, end, _), (start, _, _) in itertools.pairwise(spans):
        assert end == start
    assert first.end_ns == cut_ns == second.start_ns
    assert all(
        interval.duration_ns > 0
        for part in (first, second)
        for interval in part.threads[0].intervals
    )


@given(stays, st.integers(0, 1_600_000))
def test_a_cut_splits_the_samples_of_one_recording_without_rest(
    stays: list[tuple[int, str]], cut_us: int
) -> None:
    raw = raw_recording(thread_of(stays), samples=333)
    cut_ns = ZERO_NS + cut_us * MICROSECOND_NS
    halves = [
        assembled(raw, TARGET, 100, span) for span in (TimeRange(to_ns=cut_ns), TimeRange(cut_ns))
    ]
    whole = assembled(raw, TARGET, 100, EVER)
    assert sum(half.samples for half in halves) in range(whole.samples - 1, whole.samples + 2)


def test_samples_are_shared_among_threads_by_their_time() -> None:
    main = ThreadTrace([(0, stack("a"))], 4_000_000)
    late = ThreadTrace([(3_000_000, WAITING)], 4_000_000, "thread (4250): T", 0x7F11)
    record = assembled(raw_recording(main, late, samples=500), TARGET, 100, EVER)
    assert [sum(i.samples for i in thread.intervals) for thread in record.threads] == [400, 100]
    assert [(thread.os_tid, thread.name, thread.is_main) for thread in record.threads] == [
        (MAIN_TID, "MainThread", True),
        (4250, "T", False),
    ]


TORN = (Frame("Condition.notify", "threading.py", 1),)


def test_what_was_seen_before_a_torn_read_lasts_until_the_next_sample() -> None:
    a, b = stack("a"), stack("b")
    for changes, torn, stacks, samples, first_us in (
        ([(0, a), (500_000, TORN), (530_000, b)], 1, (a, b), [52, 47], 530_000),
        ([(0, a), (500_000, TORN), (500_100, b)], 1, (a, b), [50, 49], 500_100),
        ([(0, a), (500_000, TORN), (600_000, b)], 10, (a, b), [50, 40], 500_000),
        ([(0, TORN), (30_000, b)], 3, (b,), [97], 970_000),
    ):
        record = assembled(raw_recording(ThreadTrace(changes, 1_000_000)), TARGET, 100, EVER)
        assert (record.samples, record.torn, record.stacks) == (100, torn, stacks)
        assert [interval.samples for interval in record.threads[0].intervals] == samples
        assert record.threads[0].intervals[0].duration_ns == first_us * MICROSECOND_NS


def test_a_thread_without_frames_is_neither_sampled_nor_torn() -> None:
    main = ThreadTrace([(0, stack("a"))], 4_000_000)
    silent = ThreadTrace([(0, ())], 4_000_000, "thread (4250): pt_autograd_0", 0x7F11)
    record = assembled(raw_recording(main, silent, samples=800), TARGET, 100, EVER)
    assert (record.samples, record.torn) == (400, 0)
    assert [len(thread.intervals) for thread in record.threads] == [1, 0]
    hook = (Frame("hook", "/home/ada/train.py", 7),)
    calling = ThreadTrace(
        [(0, ()), (3_000_000, hook), (3_500_000, ())],
        4_000_000,
        "thread (4250): pt_autograd_0",
        0x7F11,
    )
    record = assembled(raw_recording(calling, samples=400), TARGET, 100, EVER)
    assert (record.samples, record.torn) == (50, 0)
    assert [stack for _, _, stack in spans_of(record)] == [hook]


def test_a_thread_that_is_gone_has_neither_time_nor_samples_of_those_that_live() -> None:
    main = ThreadTrace([(0, stack("a"))], 4_000_000)
    gone = ThreadTrace([(0, WAITING)], 4_000_000, "thread (4250): T", 0x7F11)
    raw = raw_recording(main, gone, samples=401)
    record = assembled(raw, TARGET, 100, EVER, Threads({MAIN_TID: MAIN_TID}, is_current=True))
    alive, dead = record.threads
    assert [(i.duration_ns, i.samples) for i in dead.intervals] == [(10 * MILLISECOND_NS, 1)]
    assert [(i.duration_ns, i.samples) for i in alive.intervals] == [(4000 * MILLISECOND_NS, 400)]
    gone = ThreadTrace([(0, WAITING), (90_000, WAITING[:1])], 93_000, "thread (4250): T", 0x7F11)
    record = assembled(raw_recording(gone), TARGET, 100, EVER, Threads({}, is_current=True))
    assert record.end_ns == ZERO_NS + 93_000 * MICROSECOND_NS


@pytest.mark.parametrize("threads", [Threads(), Threads({MAIN_TID: MAIN_TID}), None])
def test_where_nobody_can_tell_every_thread_lives(threads: Threads | None) -> None:
    other = ThreadTrace([(0, WAITING)], 4_000_000, "thread (4250): T", 0x7F11)
    (thread,) = assembled(raw_recording(other), TARGET, 100, EVER, threads).threads
    assert thread.intervals[0].duration_ns == 4000 * MILLISECOND_NS


def test_threads_of_a_container_or_without_ids_get_those_that_they_have_here() -> None:
    length_us, unknown = 1_000_000, (0x7F71075C16C0, 0x7F7107FC2B80)
    inside = (
        ThreadTrace([(0, stack("a"))], length_us, "thread (1): MainThread"),
        ThreadTrace([(0, WAITING)], length_us, "thread (9): T", 0x7F11),
    )
    without = (
        ThreadTrace([(0, WAITING)], length_us, f"thread (0x{unknown[0]:X}): wkr", unknown[0]),
        ThreadTrace(
            [(0, stack("a"))], length_us, f"thread (0x{unknown[1]:X}): MainThread", unknown[1]
        ),
    )
    for threads, ids, expected in (
        (inside, {1: MAIN_TID, 9: 4250}, [(MAIN_TID, True), (4250, False)]),
        (without, {MAIN_TID: MAIN_TID}, [(unknown[0], False), (unknown[1], True)]),
    ):
        record = assembled(
            raw_recording(*threads), TARGET, 100, EVER, Threads(ids, is_current=True)
        )
        assert [(thread.os_tid, thread.is_main) for thread in record.threads] == expected
        assert all(
            thread.intervals[0].duration_ns == 1000 * MILLISECOND_NS for thread in record.threads
        )


@pytest.mark.parametrize("label", ["thread (0x7F71075C16C0)", f"thread ({MAIN_TID})"])
def test_the_only_thread_is_the_main_one_whatever_it_is_called(label: str) -> None:
    lone = ThreadTrace([(0, stack("a"))], 1_000_000, label, 0x7F71075C16C0)
    (thread,) = assembled(raw_recording(lone), TARGET, 100, EVER).threads
    assert (thread.name, thread.is_main) == ("MainThread", True)


def test_a_recording_that_saw_nothing_is_empty_and_each_keeps_what_it_cost() -> None:
    record = assembled(raw_recording(samples=0), TARGET, 100, EVER)
    assert (record.start_ns, record.end_ns, record.samples, record.threads) == (
        ZERO_NS,
        ZERO_NS,
        0,
        (),
    )
    later_ns = ZERO_NS + 10_000 * MILLISECOND_NS
    record = assembled(
        raw_recording(ThreadTrace([(0, stack("a"))], 1000)), TARGET, 100, TimeRange(later_ns)
    )
    assert (record.start_ns, record.end_ns, record.samples) == (later_ns, later_ns, 0)
    raw = msgspec.structs.replace(
        raw_recording(ThreadTrace([(0, stack("a"))], 1000)), errors=7, cpu_ns=5
    )
    record = assembled(raw, TARGET, 50, EVER)
    assert (record.rate_hz, record.errors, record.cpu_ns, record.clock_error_ns) == (
        50,
        7,
        5,
        raw.clock_error_ns,
    )
    assert record.identity == TARGET


def test_a_stack_that_was_left_when_it_was_met_takes_no_time_from_the_next() -> None:
    # The deep stack is read for longer than the flat one before it lasted: both begin at the same
    # moment.
    deep = stack(*map(str, range(100)))
    changes = [(0, stack("a")), (500_000, stack("b")), (500_100, deep)]
    record = assembled(
        raw_recording(ThreadTrace(changes, 900_000), samples=90, cpu_ns=90 * MILLISECOND_NS),
        TARGET,
        100,
        EVER,
    )
    (thread,) = record.threads
    assert [record.stacks[interval.stack] for interval in thread.intervals] == [stack("a"), deep]
    assert [interval.duration_ns > 0 for interval in thread.intervals] == [True, True]
    assert sum(interval.samples for interval in thread.intervals) == 90
