"""py-spy's chrometrace: decodes it, and rebuilds the stacks of each thread. Pure.

The format holds *changes*: at a sample whose stack differs from the one before, the frames that went are ended and the
new ones begun. A sample that repeats the stack before it leaves no trace.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from profd.daemon.stacks.misreads import Change
from profd.daemon.store.records import Frame

_THREAD = re.compile(r"thread \((?:0x[0-9a-fA-F]+|(\d{1,9}))\)(?:: (.*))?", re.DOTALL)


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
_PART_BYTES = 1 << 17
"""So much of a trace is decoded at a time: decoded, it takes three times the memory."""
BETWEEN = b'},{"args":'
"""What py-spy writes between two events, and what no text within one has: there a quotation mark is escaped."""


def _events(data: bytes) -> Iterator[list[_Event]]:
    """Yield the events of a trace, part by part; raises TraceDamaged."""
    begin = 0
    try:
        while (end := data.find(BETWEEN, begin + _PART_BYTES)) >= 0:
            yield _decoder.decode(b"%b%b]" % (b"[" if begin else b"", data[begin : end + 1]))
            begin = end + 2
        yield _decoder.decode(b"%b%b" % (b"[" if begin else b"", data[begin:]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceDamaged(f"py-spy wrote no trace ({error})") from error


def decode(data: bytes) -> list[ThreadTrace]:
    """Return what each thread did by py-spy's chrometrace, in order of appearance; raises TraceDamaged."""
    threads: defaultdict[int, _Stacks] = defaultdict(_Stacks)
    for events in _events(data):
        by_thread: defaultdict[int, list[_Event]] = defaultdict(list)
        for event in events:
            if event.ph in ("B", "E"):
                by_thread[event.tid].append(event)
        for ident, of_thread in by_thread.items():
            threads[ident].take(of_thread)
    # What a target calls a thread may have 64 bits, a run file holds one less.
    traces = (stacks.trace(ident & ((1 << 63) - 1)) for ident, stacks in threads.items())
    return [trace for trace in traces if trace is not None]


# The one object for a frame: later look-ups, in whichever recording, compare no text.
_frame = functools.lru_cache(1 << 11)(Frame)


class _Stacks:
    """The stacks of one thread, rebuilt from its events; several events at one time are one change."""

    def __init__(self) -> None:
        self._stack: list[Frame] = []
        self._changes: list[Change] = []
        self._at_us = -1
        self._roots: dict[str, None] = {}
        self._known: dict[tuple[str, str, int], Frame] = {}

    def take(self, events: Sequence[_Event]) -> None:
        stack, known, at_us = self._stack, self._known, self._at_us
        for event in events:
            if event.ts != at_us:
                if event.ts < at_us:
                    raise TraceDamaged("py-spy went back in time")
                if at_us >= 0:
                    self._add(at_us)
                at_us = event.ts
            if event.ph == "B":
                named = (event.name, event.args.filename, event.args.line or 0)
                frame = known.get(named)
                if frame is None:
                    # The root names one thread alone: workers that come and go would fill the cache with theirs.
                    frame = known[named] = _frame(*named) if stack else Frame(*named)
                stack.append(frame)
            elif stack:
                stack.pop()
            else:
                raise TraceDamaged("py-spy ended a frame that it had not begun")
        self._at_us = at_us

    def _add(self, at_us: int) -> None:
        self._changes.append(Change(at_us, tuple(self._stack[1:])))
        self._roots |= {frame.function: None for frame in self._stack[:1]}

    def trace(self, ident: int) -> ThreadTrace | None:
        """Return what the thread did; None where nothing was seen. Raises TraceDamaged."""
        self._add(self._at_us)
        # py-spy names a thread once it can: hardly before the program has imported threading.
        if not self._roots or len(self._changes) < 2:
            return None
        os_tid, name = None, ""
        for root in self._roots:
            match = _THREAD.fullmatch(root)
            if not match:
                raise TraceDamaged("py-spy did not name the threads")
            os_tid, name = int(match[1]) if match[1] else os_tid, name or match[2] or ""
        return ThreadTrace(ident, os_tid, name, tuple(self._changes))
