"""Decodes py-spy's chrometrace format into the stacks of each thread over time.

The format holds *changes*: at a sample whose stack differs from the one before, the frames that went are ended and
the new ones begun. A sample that repeats the stack before it leaves no trace.

py-spy reads a stack from the leaf to the root, frame by frame out of the memory of another process, and notes the time
when it has all threads. A deep stack is noted later after it was true than a flat one. Taken as they are noted, deep
stacks would lose that time to flat ones with every sample: 15 points of a recursion 200 deep, one or two of a training
loop. How long a read takes is known from the CPU time of the recording, in proportion to the frames.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from profd.daemon.clock import MICROSECOND_NS
from profd.daemon.store.records import Frame

_THREAD = re.compile(r"thread \((?:0x[0-9a-fA-F]+|(\d{1,9}))\)(?:: (.*))?", re.DOTALL)


class Change(msgspec.Struct, frozen=True):
    """From ``at_us`` on, until the next change, the thread stood in ``frames`` (root first; empty: in none)."""

    at_us: int
    frames: tuple[Frame, ...]


class ThreadTrace(msgspec.Struct, frozen=True):
    """The changes of one thread in order of time; the last one only marks the end of the trace.

    ``ident`` is the interpreter's id of the thread, ``os_tid`` the kernel's in the process's own PID namespace: None up
    to Python 3.10, which does not have it.
    """

    ident: int
    os_tid: int | None
    name: str
    changes: tuple[Change, ...]


class TraceDamaged(Exception):
    """The bytes are no trace of py-spy's; the message says why."""


# A recording has thousands of events, which hold nothing that could hold them: the collector need not look at them.
class _Arguments(msgspec.Struct, gc=False):
    filename: str = ""
    # 32 bits, with or without a sign: the line of a frame that was read torn may be anything.
    line: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 32)] | None = None


class _Event(msgspec.Struct, gc=False):
    ph: str
    tid: int
    ts: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]  # decades: what is later is no time
    name: str = ""
    args: _Arguments = msgspec.field(default_factory=_Arguments)


_decoder = msgspec.json.Decoder(list[_Event])


def decode(data: bytes) -> list[ThreadTrace]:
    """Return what each thread did by py-spy's chrometrace, in order of appearance; raises TraceDamaged."""
    try:
        events = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceDamaged(f"py-spy wrote no trace ({error})") from error
    threads: dict[int, _Thread] = {}
    for event in events:
        if event.ph in ("B", "E"):
            thread = threads.get(event.tid)
            if thread is None:  # what a target calls a thread may have 64 bits, a run file holds one less
                thread = threads[event.tid] = _Thread(event.tid & ((1 << 63) - 1))
            thread.take(event)
    return [trace for thread in threads.values() if (trace := thread.trace()) is not None]


# The one object for a frame: later look-ups, in whichever recording, compare no text.
_frame = functools.lru_cache(1 << 12)(Frame)


class _Thread:
    """Rebuilds the stacks of one thread; several events at one time are one change."""

    def __init__(self, ident: int) -> None:
        self._ident = ident
        self._stack: list[Frame] = []
        self._changes: list[Change] = []
        self._at_us = -1
        self._interned: dict[tuple[str, str, int], Frame] = {}

    def take(self, event: _Event) -> None:
        if event.ts != self._at_us:
            if event.ts < self._at_us:
                raise TraceDamaged("py-spy went back in time")
            self._close()
            self._at_us = event.ts
        if event.ph == "B":
            named = (event.name, event.args.filename, event.args.line or 0)
            frame = self._interned.get(named)
            if frame is None:
                frame = self._interned[named] = _frame(*named)
            self._stack.append(frame)
        elif self._stack:
            self._stack.pop()
        else:
            raise TraceDamaged("py-spy ended a frame that it had not begun")

    def trace(self) -> ThreadTrace | None:
        self._close()
        # py-spy names a thread once it can: hardly before the program has imported threading.
        roots = dict.fromkeys(change.frames[0].function for change in self._changes if change.frames)
        if not roots or len(self._changes) < 2:
            return None
        os_tid, name = None, ""
        for root in roots:
            match = _THREAD.fullmatch(root)
            if not match:
                raise TraceDamaged("py-spy did not name the threads")
            os_tid, name = int(match[1]) if match[1] else os_tid, name or match[2] or ""
        changes = tuple(Change(change.at_us, change.frames[1:]) for change in self._changes)
        return ThreadTrace(self._ident, os_tid, name, changes)

    def _close(self) -> None:
        if self._at_us >= 0:
            self._changes.append(Change(self._at_us, tuple(self._stack)))


START_US = 15_000
"""CPU time of a recording that is no reading: starting py-spy, finding the interpreter, writing the file."""
FRAMES_AROUND = 12
"""What a moment of reading costs beside the frames themselves, in frames: 210 µs of CPU time, and 17 µs a frame."""
USUAL_US_PER_FRAME = 8.0


def as_read(traces: Sequence[ThreadTrace], samples: int, cpu_ns: int) -> list[ThreadTrace]:
    """Return what threads did with each change at the time when it was read; their order stays.

    ``samples`` are the stacks that were read of all threads, ``cpu_ns`` is what the recording took, 0 where that is not
    known: then changes stay as they were noted.
    """
    lengths = [trace.changes[-1].at_us - trace.changes[0].at_us for trace in traces]
    longest = max(lengths, default=0)
    if not longest or not samples or not cpu_ns:
        return list(traces)
    depths = [_mean_depth(trace) for trace in traces]
    frames = sum(depth * length for depth, length in zip(depths, lengths, strict=True)) / longest
    moments, per_frame_us = samples * longest / sum(lengths), USUAL_US_PER_FRAME
    if moments >= 50:
        per_frame_us = (cpu_ns / MICROSECOND_NS - START_US) / moments / (FRAMES_AROUND + frames)
        per_frame_us = min(max(per_frame_us, 2.0), 40.0)
    around = [FRAMES_AROUND + max(frames - depth, 0.0) for depth in depths]
    return [_shifted(trace, per_frame_us, beside) for trace, beside in zip(traces, around, strict=True)]


def _mean_depth(trace: ThreadTrace) -> float:
    whole = trace.changes[-1].at_us - trace.changes[0].at_us
    stays = zip(trace.changes, trace.changes[1:], strict=False)
    return sum(len(now.frames) * (after.at_us - now.at_us) for now, after in stays) / whole if whole else 0.0


def _shifted(trace: ThreadTrace, per_frame_us: float, frames_around: float) -> ThreadTrace:
    """Return a thread's changes each earlier by the time that its stack took to be read; its end stays."""
    *seen, end = trace.changes
    shifted: list[Change] = []
    for change in seen:
        at_us = change.at_us - round(per_frame_us * (frames_around + len(change.frames)))
        if shifted:
            at_us = max(at_us, shifted[-1].at_us)
        shifted.append(Change(at_us, change.frames))
    return msgspec.structs.replace(trace, changes=(*shifted, end))
