"""The Trace Event Format, and the windows of a run in it: operators by thread, work by stream, steps, memory, launches.

Operators have tracks of their own beside the Python frames of their thread: the two do not nest. All tracks have
numbers of 32 bits, which is what the tools read.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.torchtraces import DEVICE_WORK, TorchEvent, TorchTrace, decode, selected_windows, trace_text
from profd.daemon.clock import MICROSECOND_NS
from profd.daemon.render.plaintext import process_title, visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import WindowRow

Event = dict[str, object]
Track = tuple[int, int]
_IDS = 1 << 22
"""More than Linux has processes and threads."""
_OWN_TID = 1 << 31
"""Tracks from here on are no threads; the first ``_IDS`` are those of phases."""
_STEPS_TID = _OWN_TID + _IDS
_LANES_TID = _OWN_TID + 2 * _IDS
_DEVICES = 64


class _Memory(msgspec.Struct, frozen=True):
    """A change of memory."""

    total: int | None = msgspec.field(name="Total Allocated", default=None)
    device: int = msgspec.field(name="Device Id", default=-1)


def microseconds(reader: RunReader, at_ns: int) -> float:
    return (at_ns - reader.info.started_ns) / MICROSECOND_NS


def slice_event(reader: RunReader, name: str, category: str, start_ns: int, end_ns: int) -> Event:
    """Return a slice, still without its track."""
    ts = microseconds(reader, start_ns)
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": (end_ns - start_ns) / MICROSECOND_NS}


def name_event(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def window_events(reader: RunReader, selection: Selection) -> Iterator[Event]:
    """Yield the windows of a selection with their whole steps; raises RunUnreadable."""
    for window in selected_windows(reader, selection):
        process = reader.processes[window.process]
        place: Event = {"pid": process.pid, "tid": _STEPS_TID}
        yield name_event("thread_name", process.pid, _STEPS_TID, "window")
        yield {**slice_event(reader, f"window by {window.source}", "window", window.start_ns, window.end_ns), **place}
        for number, step in enumerate(reader.window_steps(window.id), 1):
            start_ns, end_ns = max(step.start_ns, window.start_ns), min(step.end_ns, window.end_ns)
            yield {**slice_event(reader, f"step {number}", "step", start_ns, end_ns), **place}
        if (text := trace_text(reader, window)) is not None:
            yield from _WindowTracks(reader, window, decode(window, text)).events()


class _WindowTracks:
    """The trace of one window on the tracks of its process and of the devices that it used."""

    def __init__(self, reader: RunReader, window: WindowRow, trace: TorchTrace) -> None:
        self._reader = reader
        self._window = window
        self._process = reader.processes[window.process]
        self._trace = trace

    def events(self) -> Iterator[Event]:
        tracks: defaultdict[Track, list[TorchEvent]] = defaultdict(list)
        for event in self._trace.events:
            if not isinstance(event.pid, int):  # the profiler's own notes
                continue
            if event.ph == "X":
                tracks[self._track(event, on_device=event.cat in DEVICE_WORK)].append(event)
            elif event.ph in ("s", "t", "f"):
                yield self._flow(event)
            elif event.name == "[memory]":
                yield from self._memory(event)
        for track, events in sorted(tracks.items()):
            yield from self._slices(track, events)

    def _slices(self, track: Track, events: Iterable[TorchEvent]) -> Iterator[Event]:
        """Yield the slices of a track, nested; those that overlap another one without lying in it get further lanes."""
        pid, tid = track
        used = 0
        for event, lane in _in_lanes(self._trace, events):
            while used <= lane:
                yield from self._names(track, used)
                used += 1
            start_ns, end_ns = self._trace.start_ns(event), self._trace.end_ns(event)
            shown = slice_event(self._reader, visible(event.name), event.cat, start_ns, end_ns)
            yield {**shown, "pid": pid, "tid": tid + lane * _IDS, "args": event.args}

    def _names(self, track: Track, lane: int) -> Iterator[Event]:
        """Yield the name of a track, and on its first lane that of the device."""
        pid, tid = track
        number = (tid - _LANES_TID) % _IDS
        if pid == self._process.pid:
            rows = (row for row in self._reader.threads.values() if row.process == self._process.id)
            thread = next((visible(row.name) for row in rows if row.os_tid == number), f"thread {number}")
            name = f"operators of {thread}"
        else:
            name = f"stream {number}"
            yield name_event("process_name", pid, 0, f"GPU {pid % _DEVICES}, {process_title(self._process)}")
        yield name_event("thread_name", pid, tid + lane * _IDS, f"{name} ({lane + 1})" if lane else name)

    def _track(self, event: TorchEvent, *, on_device: bool) -> Track:
        tid = _LANES_TID + _number(event.tid)
        if not on_device:
            return self._process.pid, tid
        return _IDS + self._process.id * _DEVICES + _number(event.pid) % _DEVICES, tid

    def _flow(self, event: TorchEvent) -> Event:
        """Return an arrow's end: forward to backward, or a launch to what it launched."""
        pid, tid = self._track(event, on_device=event.cat == "ac2g" and event.ph == "f")
        own = event.id if isinstance(event.id, int) else _number(event.id)
        return {
            "ph": event.ph,
            "cat": event.cat,
            "name": event.name,
            "id": self._window.id << 32 | own & 0xFFFFFFFF,
            "pid": pid,
            "tid": tid,
            "ts": microseconds(self._reader, self._trace.start_ns(event)),
            **({"bp": "e"} if event.ph == "f" else {}),
        }

    def _memory(self, event: TorchEvent) -> Iterator[Event]:
        """Yield how much memory torch has taken, where the trace says so."""
        try:
            memory = msgspec.json.decode(event.args, type=_Memory)
        except msgspec.DecodeError:  # of a version of torch that says it in other words
            return
        if memory.total is not None:
            where = "cpu" if memory.device < 0 else f"cuda:{memory.device}"
            ts = microseconds(self._reader, self._trace.start_ns(event))
            place: Event = {"pid": self._process.pid, "tid": 0, "ts": ts}
            yield {"ph": "C", "name": f"torch_allocated_bytes {where}", **place, "args": {"value": memory.total}}


def _in_lanes(trace: TorchTrace, events: Iterable[TorchEvent]) -> Iterator[tuple[TorchEvent, int]]:
    """Yield events in order of time, each with the first lane where it lies within what is open, or beside it."""
    lanes: list[list[int]] = []
    for event in sorted(events, key=lambda event: (trace.start_ns(event), -trace.end_ns(event))):
        start_ns, end_ns = trace.start_ns(event), trace.end_ns(event)
        for lane in range(64):
            if lane == len(lanes):
                lanes.append([])
            ends = lanes[lane]
            while ends and ends[-1] <= start_ns:
                ends.pop()
            if not ends or end_ns <= ends[-1]:
                ends.append(end_ns)
                yield event, lane
                break


def _number(id: int | str) -> int:
    """Return a number for torch's name of a thread, a stream or a device."""
    return id % _IDS if isinstance(id, int) else zlib.crc32(id.encode()) % _IDS
