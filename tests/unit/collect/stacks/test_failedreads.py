"""Reads that fail, as py-spy logs them."""

from __future__ import annotations

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.stacks.chrometrace import ThreadTrace
from profd.daemon.collect.stacks.failedreads import FailedRead, read_log, times_at, without_log

ZERO_NS = 1_795_267_341 * SECOND_NS
IDENT = 139979236125568
FAILED = "WARN  py_spy] Failed to get stack trace from 24382: Failed to"
LOG = f"""py-spy> Sampling process 100 times a second for 4 seconds. Press Control-C to exit.

[2026-11-21T13:22:21.405763342Z {FAILED} call get_stack_trace for thread 139979236125568
[2026-11-21T13:22:21.430673338Z {FAILED} copy PyThreadState
Error: Something else
""".encode()


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


def test_a_log_with_fewer_digits_tells_the_same_time() -> None:
    (one,) = read_log(f"[2026-11-21T13:22:21.4Z {FAILED} call get_stack_trace for thread 7\n".encode(), 0)
    assert one == FailedRead(ZERO_NS + 400_000_000, 7)


def test_a_thread_has_its_own_failed_reads_alone() -> None:
    trace = ThreadTrace(IDENT, None, "", ())
    failed = [FailedRead(ZERO_NS + 3_000, IDENT), FailedRead(ZERO_NS + 5_000, 7), FailedRead(ZERO_NS + 8_000, None)]
    assert times_at(trace, failed, ZERO_NS) == [3]
