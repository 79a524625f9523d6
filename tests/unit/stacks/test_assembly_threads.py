"""Threads whose ids or lives Python itself does not know: after a fork by an extension, or the end
of the main one.
"""

from __future__ import annotations

import msgspec
from support.traces import MAIN_TID, ThreadTrace, raw_recording, stack

from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.stacks.assembly import Threads, assemble
from profd.daemon.store.records import Identity
from profd.daemon.timerange import EVER

MAIN = ThreadTrace([(0, stack("main"))], 1_000_000)
BUSY = ThreadTrace(
    [
        (at_us, stack("load" if at_us % 20_000 else "forward"))
        for at_us in range(0, 1_000_000, 10_000)
    ],
    1_000_000,
)
WORKER = msgspec.structs.replace(BUSY, label="thread (77): Thread-1", ident=0x7F11)
TARGET = Identity(MAIN_TID, 1000)


def test_a_main_thread_that_has_ended_has_no_samples_of_others() -> None:
    living = Threads({77: 77}, is_current=True)
    (taken,) = assemble(raw_recording(MAIN, WORKER, samples=200), TARGET, 100, EVER, living)
    samples = {
        one.os_tid: sum(interval.samples for interval in one.intervals) for one in taken.threads
    }
    assert samples[MAIN_TID] <= 1
    assert abs(samples[77] - 100) <= 1
    assert (
        taken.samples <= 101
    )  # samples times their distance are no more than the second that was read


def test_a_main_thread_that_was_seen_to_end_has_no_time_after_it_once_the_process_is_gone() -> None:
    lived_ns = 400 * MILLISECOND_NS
    raw = raw_recording(MAIN, WORKER, samples=200)
    gone = Threads({MAIN_TID: MAIN_TID, 77: 77}, main_seen_ns=raw.zero_ns + lived_ns)
    (taken,) = assemble(raw, TARGET, 100, EVER, gone)
    spent_ns = {
        one.os_tid: sum(interval.duration_ns for interval in one.intervals) for one in taken.threads
    }
    assert abs(spent_ns[MAIN_TID] - lived_ns) < 10 * MILLISECOND_NS
    assert spent_ns[77] > 950 * MILLISECOND_NS


def test_a_process_that_an_extension_forked_has_the_ids_of_its_own_thread() -> None:
    child = Identity(4711, 1000)
    living = Threads({4711: 4711}, is_current=True)
    (alone,) = assemble(raw_recording(BUSY), child, 100, EVER, living)
    assert [(one.os_tid, one.is_main) for one in alone.threads] == [(4711, True)]
    assert alone.samples == 100
    # Of the other threads of its parent the child has what they were at the fork.
    (beside,) = assemble(raw_recording(MAIN, WORKER, samples=200), child, 100, EVER, living)
    assert [one.os_tid for one in beside.threads if one.is_main] == [4711]
    (forked,) = (one for one in beside.threads if one.is_main)
    assert sum(interval.samples for interval in forked.intervals) >= 99
