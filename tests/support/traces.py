"""Makes traces as py-spy writes them: one thread after the other, or all in the order of time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.stacks.pyspy import RawRecording
from profd.daemon.store.records import Frame, Stack

MAIN_TID = 4242
ROOT = Frame("<module>", "/home/ada/train.py", 96)
ZERO_NS = 1_795_176_000 * SECOND_NS


def stack(*functions: str) -> Stack:
    """Return a whole stack: these functions, called from a script."""
    return (ROOT, *(Frame(function, "/home/ada/train.py", 10) for function in functions))


class ThreadTrace(msgspec.Struct, frozen=True):
    """What one thread did: from each time on (microseconds) it stood in a stack, until the end."""

    changes: Sequence[tuple[int, Stack]]
    end_us: int
    label: str = f"thread ({MAIN_TID}): MainThread"
    ident: int = 0x7F00_0000_0000


def write_trace(*threads: ThreadTrace) -> bytes:
    """Return a trace of these threads in py-spy's format."""
    events = [event for thread in threads for event in _events(thread)]
    return msgspec.json.encode(sorted(events, key=lambda event: event["ts"]))


def raw_recording(
    *threads: ThreadTrace, samples: int = 100, zero_ns: int = ZERO_NS, cpu_ns: int = 0
) -> RawRecording:
    """Return a recording of these threads."""
    return RawRecording(write_trace(*threads), zero_ns, 2_000_000, samples, 1, cpu_ns)


def _events(thread: ThreadTrace) -> list[dict[str, object]]:
    events: list[dict[str, object]] = []
    before: Stack = ()
    for at_us, frames in (
        *((at_us, (Frame(thread.label, "", 0), *inner)) for at_us, inner in thread.changes),
    ):
        events += _difference(thread, at_us, before, frames)
        before = frames
    return events + _difference(thread, thread.end_us, before, ())


def _difference(
    thread: ThreadTrace, at_us: int, before: Stack, after: Stack
) -> list[dict[str, object]]:
    """Return the events by which one stack becomes another: frames that differ end, new ones begin."""
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    ended = [_event("E", thread, at_us, frame) for frame in reversed(before[same:])]
    return ended + [_event("B", thread, at_us, frame) for frame in after[same:]]


def _event(kind: str, thread: ThreadTrace, at_us: int, frame: Frame) -> dict[str, object]:
    return {
        "args": {"filename": frame.file, "line": frame.line},
        "cat": "py-spy",
        "name": frame.function,
        "ph": kind,
        "pid": MAIN_TID,
        "tid": thread.ident,
        "ts": at_us,
    }
