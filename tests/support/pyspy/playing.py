"""Plays a trace of py-spy's for as long as the stand-in samples.

The trace is cut to the time that really passed, and begun again where that is longer. The process ID and the operating
system's ID of the main thread become those of the process that the stand-in was asked for.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

_THREAD = re.compile(r"thread \((\w+)\)(?:: (.*))?", re.DOTALL)
_FAILED = "Failed to copy PyThreadState head pointer"

Event = dict[str, Any]


class Span(NamedTuple):
    """When the stand-in sampled, in microseconds from its start on.

    ``end_us`` is when the process could last be read. ``wall_zero_s`` is the wall clock's time of the start, ``most``
    how many samples of a thread py-spy takes in the time that it was given.
    """

    sampling_us: int
    end_us: int
    wall_zero_s: float
    rate: int
    most: int | None


class Played(NamedTuple):
    """What py-spy writes into its file and its log, and its totals."""

    data: bytes
    log: list[str]
    samples: int
    errors: int


class Take:
    """A trace, as the changes that all threads made at each time."""

    def __init__(self, trace: str, pid: int) -> None:
        events: list[Event] = json.loads(trace or "[]")
        main = _main_id(events)
        for event in events:
            event["pid"] = pid
            if main and _is_label(event) and event["name"].startswith(f"thread ({main})"):
                event["name"] = event["name"].replace(main, str(pid), 1)
        self.pid = pid
        self._first_us = events[0]["ts"] if events else 0
        self._length_us = max(events[-1]["ts"] - self._first_us, 1) if events else 1
        # Not what ends with the trace: py-spy ends everything where it ends itself.
        self._events = [event for event in events if event["ts"] < self._first_us + self._length_us]
        self._threads = len({event["tid"] for event in events})

    def play(self, span: Span, fail_every: int) -> Played:
        """Return what a recording over this span would have been."""
        events = list(self._events_until(span.sampling_us, max(span.end_us, span.sampling_us + 1)))
        intervals = max((span.end_us - span.sampling_us) * span.rate // 1_000_000, 1)
        intervals = min(intervals, span.most) if span.most is not None else intervals
        failed = [k for k in range(1, intervals + 1) if fail_every and k % fail_every == 0]
        failed_us = [span.sampling_us + k * 1_000_000 // span.rate for k in failed]
        log = [failed_read(self.pid, span.wall_zero_s + at_us / 1e6) for at_us in failed_us]
        return Played(_json(events), log, (intervals - len(failed)) * self._threads, len(failed))

    def _events_until(self, begin_us: int, end_us: int) -> Iterator[Event]:
        """Yield the events by time, the recording again and again, and in the end what closes all that is open."""
        open_frames: dict[int, list[Event]] = {}
        at_us = begin_us
        while self._events and at_us < end_us:
            for event in self._events:
                now_us = at_us + event["ts"] - self._first_us
                if now_us >= end_us:
                    break
                frames = open_frames.setdefault(event["tid"], [])
                if event["ph"] == "B":
                    frames.append(event)
                else:
                    frames.pop()
                yield {**event, "ts": now_us}
            at_us += self._length_us
            for frames in open_frames.values():
                while frames:
                    yield {**frames.pop(), "ph": "E", "ts": min(at_us, end_us)}


def _is_label(event: Event) -> bool:
    """Say whether an event is of the frame that py-spy makes up for a thread."""
    return not event["args"]["filename"] and bool(_THREAD.fullmatch(event["name"]))


def _main_id(events: list[Event]) -> str:
    """Return the ID of the main thread, the one named so or else the one of the process; empty where it has none."""
    found = {
        (match[1], match[2] or ""): event["pid"]
        for event in events
        if (match := _THREAD.fullmatch(event["name"]))
    }
    main = [tid for (tid, name), pid in found.items() if name == "MainThread" or tid == str(pid)]
    return main[0] if main and main[0].isdigit() else ""


def failed_read(pid: int, wall_s: float) -> str:
    """Return the line of the log for a read that failed at this time of the wall clock."""
    whole, part = divmod(round(wall_s * 1e9), 1_000_000_000)
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{part:09}Z"
    return f"[{stamp} WARN  py_spy] Failed to get stack trace from {pid}: {_FAILED}\n"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def dumped(dump: str, pid: int) -> bytes:
    """Return a dump as one of this process."""
    threads: list[dict[str, Any]] = json.loads(dump)
    for thread in threads:
        is_main = thread["thread_name"] == "MainThread" or thread["os_thread_id"] == thread["pid"]
        thread["pid"] = pid
        thread["os_thread_id"] = pid if is_main else thread["os_thread_id"]
    return json.dumps(threads, indent=2).encode() + b"\n"


def spoil(data: bytes, how: str, size: int) -> bytes | None:
    """Return the file as a fault leaves it; None where nothing is to be written."""
    if how == "none":
        return None
    if how == "cut":
        return data[: len(data) // 2]
    if how == "garbage":
        return b"\x00garbage" * 1000
    if how == "enormous":
        return _swell(json.loads(data), size)
    return data


def _swell(events: list[Event], size: int) -> bytes:
    """Return a trace of at least so many bytes, in which a frame ends and begins again and again."""
    begun = [number for number, event in enumerate(events) if event["ph"] == "B"]
    number = begun[-1] if begun else 0
    pair = [{**events[number], "ph": "E"}, events[number]]
    again = _json(pair)[1:-2] + b","
    times = size // len(again) + 1
    return _json(events[: number + 1])[:-2] + b"," + again * times + _json(events[number + 1 :])[1:]
