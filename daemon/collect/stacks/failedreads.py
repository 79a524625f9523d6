"""When py-spy failed to read a stack: its log has a line for each time, with the thread."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from profd.daemon.clock import MICROSECOND_NS, SECOND_NS
from profd.daemon.collect.stacks.chrometrace import ThreadTrace

LOG_FAILURES = {"RUST_LOG": "py_spy=warn"}
"""What has py-spy write a line with the time for each read that fails."""
_LOGGED = re.compile(
    rb"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{1,9})Z +WARN +py_spy\] Failed to get stack trace from \d+: ([^\n]*)",
    re.MULTILINE,
)
_OF_THREAD = re.compile(rb" for thread (\d{1,20})\b")


class FailedRead(msgspec.Struct, frozen=True):
    """A read that failed: when, and at which thread as the interpreter calls it (None: it does not say)."""

    at_ns: int
    ident: int | None


def read_log(said: bytes, wall_ahead_ns: int) -> tuple[FailedRead, ...]:
    """Return the failed reads that py-spy logged, by a clock that the wall clock is ahead of by so much, in order.

    What has no time that can be is left out.
    """
    found = []
    for seconds, fraction, why in _LOGGED.findall(said):
        try:
            at = datetime.fromisoformat(f"{seconds.decode()}+00:00")
        except ValueError:
            continue
        wall_ns = int(at.timestamp()) * SECOND_NS + int(fraction.ljust(9, b"0"))
        thread = _OF_THREAD.search(why)
        found.append(FailedRead(wall_ns - wall_ahead_ns, int(thread[1]) if thread else None))
    return tuple(found)


def without_log(said: bytes) -> bytes:
    """Return what py-spy said beside its log."""
    return _LOGGED.sub(b"", said)


def times_at(trace: ThreadTrace, failed: Sequence[FailedRead], zero_ns: int) -> list[int]:
    """Return when reads of a thread failed, in microseconds of the trace, whose zero is at ``zero_ns``."""
    return [(one.at_ns - zero_ns) // MICROSECOND_NS for one in failed if one.ident == trace.ident]
