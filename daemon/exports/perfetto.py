"""A run as one timeline for ui.perfetto.dev and chrome://tracing: the Trace Event Format, as JSON.

Each thread has a track of its Python frames; main threads also have one of their phases. Series are
counters, events are marks. The windows of torch.profiler have their own tracks: operators by
thread, which do not nest with the thread's Python frames, then work by stream, steps, memory and
launches. All tracks have 32-bit numbers, as the tools read no others. Times are microseconds since
the run's start; ``baseTimeNanoseconds`` is that start, as in torch's own traces.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import selected_intervals
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.torchtraces import (
    DEVICE_WORK,
    TorchEvent,
    TorchTrace,
    decode,
    selected_windows,
    trace_text,
)
from profd.daemon.clock import MICROSECOND_NS
from profd.daemon.render.plaintext import process_title, visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, IntervalRow, WindowRow

Event = dict[str, object]
Track = tuple[int, int]
HOST_PID = 0
"""The process that stands for the host, its counters and GPUs: no process of a run has this PID."""
_LONGEST_GAP_NS = 50_000_000
"""A frame in two stacks goes on if the gap between them is shorter than this.

A torn stack that was dropped leaves such a gap.
"""
_IDS = 1 << 22
"""More than the number of processes and threads on Linux."""
_PHASE_TID = 1 << 31
"""Tracks from here on are no threads: first the phases of main threads, then others."""
_STEPS_TID = _PHASE_TID + _IDS
_LANES_TID = _PHASE_TID + 2 * _IDS
_DEVICES = 64


def perfetto(reader: RunReader, selection: Selection) -> bytes:
    trace = {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": reader.info.started_ns,
        "otherData": {
            "run": visible(reader.info.id),
            "command": visible(" ".join(reader.info.command)),
        },
        "traceEvents": list(_events(reader, selection)),
    }
    return msgspec.json.encode(trace)


def _events(reader: RunReader, selection: Selection) -> Iterator[Event]:
    phases = PhaseIndex(reader)
    intervals: defaultdict[int, list[IntervalRow]] = defaultdict(list)
    for interval in selected_intervals(reader, selection, selection.threads(reader), phases):
        intervals[interval.thread].append(interval)
    yield name_event("process_name", HOST_PID, 0, "host")
    for process in reader.processes.values():
        yield name_event("process_name", process.pid, 0, process_title(process))
    for thread, run in intervals.items():
        row = reader.threads[thread]
        pid, tid = reader.processes[row.process].pid, row.os_tid
        yield name_event("thread_name", pid, tid, visible(row.name))
        yield from _frame_slices(reader, run, {"pid": pid, "tid": tid})
        if row.is_main:
            yield name_event("thread_name", pid, _PHASE_TID + tid, "phases")
            yield from _phase_slices(reader, run, phases, {"pid": pid, "tid": _PHASE_TID + tid})
    yield from _counters(reader, selection)
    for event in reader.events():
        happened_to = reader.processes.get(event.process or 0)
        scope, pid = ("g", HOST_PID) if happened_to is None else ("p", happened_to.pid)
        place = {"pid": pid, "tid": 0, "ts": microseconds(reader, event.at_ns)}
        yield {
            "ph": "i",
            "s": scope,
            "cat": "event",
            "name": visible(f"{event.kind}: {event.text}"),
            **place,
        }
    yield from window_events(reader, selection)


def _frame_slices(reader: RunReader, intervals: list[IntervalRow], place: Event) -> Iterator[Event]:
    """Yield the frames of a thread as nested slices.

    A slice goes on as long as consecutive stacks begin with its frame.
    """
    open_frames: list[tuple[FrameRow, int]] = []

    def close(depth: int, at_ns: int) -> Iterator[Event]:
        """End all frames from a depth on, the innermost first."""
        while len(open_frames) > depth:
            frame, start_ns = open_frames.pop()
            args = {"file": visible(frame.module_path), "line": frame.line}
            yield {
                **slice_event(reader, visible(frame.function), "python", start_ns, at_ns),
                **place,
                "args": args,
            }

    end_ns = 0
    for interval in intervals:
        if interval.start_ns - end_ns > _LONGEST_GAP_NS:
            yield from close(0, end_ns)
        frames, kept = reader.frames_of(interval.stack), 0
        for frame, (known, _) in zip(frames, open_frames, strict=False):
            # A frame goes on if only its line changes.
            if (frame.function, frame.file) != (known.function, known.file):
                break
            kept += 1
        yield from close(kept, interval.start_ns)
        open_frames += [(frame, interval.start_ns) for frame in frames[kept:]]
        end_ns = interval.end_ns
    yield from close(0, end_ns)


def _phase_slices(
    reader: RunReader, intervals: list[IntervalRow], phases: PhaseIndex, place: Event
) -> Iterator[Event]:
    name, start_ns, end_ns = "", 0, 0
    for interval in intervals:
        phase = phases.of_stack(interval.stack)
        if phase != name or interval.start_ns - end_ns > _LONGEST_GAP_NS:
            if name:
                yield {**slice_event(reader, name, "phase", start_ns, end_ns), **place}
            name, start_ns = phase, interval.start_ns
        end_ns = interval.end_ns
    if name:
        yield {**slice_event(reader, name, "phase", start_ns, end_ns), **place}


def _counters(reader: RunReader, selection: Selection) -> Iterator[Event]:
    """Yield the series of processes, devices and the host.

    Each value is placed at the time from which it holds, because a counter keeps its value.
    """
    time = selection.time_in(reader)
    for series in reader.list_series():
        process = reader.processes.get(series.process or 0)
        if series.os_tid is not None or (
            process is not None and not selection.takes_process(process)
        ):
            continue
        name = series.name if series.device is None else f"{series.name} {visible(series.device)}"
        pid = HOST_PID if process is None else process.pid
        for step in reader.steps(series.id, time).clipped(time):
            ts = microseconds(reader, step.start_ns)
            yield {
                "ph": "C",
                "name": name,
                "pid": pid,
                "tid": 0,
                "ts": ts,
                "args": {"value": step.value},
            }


class _Memory(msgspec.Struct, frozen=True):
    total: int | None = msgspec.field(name="Total Allocated", default=None)
    device: int = msgspec.field(name="Device Id", default=-1)


def microseconds(reader: RunReader, at_ns: int) -> float:
    return (at_ns - reader.info.started_ns) / MICROSECOND_NS


def slice_event(reader: RunReader, name: str, category: str, start_ns: int, end_ns: int) -> Event:
    """Return a slice, still without its track."""
    ts = microseconds(reader, start_ns)
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": ts,
        "dur": (end_ns - start_ns) / MICROSECOND_NS,
    }


def name_event(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def window_events(reader: RunReader, selection: Selection) -> Iterator[Event]:
    """Yield the windows of a selection with their whole steps; raises RunUnreadable."""
    for window in selected_windows(reader, selection):
        process = reader.processes[window.process]
        place: Event = {"pid": process.pid, "tid": _STEPS_TID}
        yield name_event("thread_name", process.pid, _STEPS_TID, "window")
        yield {
            **slice_event(
                reader, f"window by {window.source}", "window", window.start_ns, window.end_ns
            ),
            **place,
        }
        for number, step in enumerate(reader.window_steps(window.id), 1):
            start_ns, end_ns = max(step.start_ns, window.start_ns), min(step.end_ns, window.end_ns)
            yield {**slice_event(reader, f"step {number}", "step", start_ns, end_ns), **place}
        if (text := trace_text(reader, window)) is not None:
            yield from _WindowTracks(reader, window, decode(window, text)).events()


class _WindowTracks:
    """The trace of one window on the tracks of its process and of the devices that it used."""

    def __init__(self, reader: RunReader, window: WindowRow, trace: TorchTrace) -> None:
        self._reader, self._window, self._trace = reader, window, trace
        self._process = reader.processes[window.process]

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
        """Yield the slices of a track, nested.

        Slices that overlap another one without lying in it go to further lanes.
        """
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
        """Yield the name of a track, and on its first lane the name of the device."""
        pid, tid = track
        number = (tid - _LANES_TID) % _IDS
        if pid == self._process.pid:
            rows = (row for row in self._reader.threads.values() if row.process == self._process.id)
            thread = next(
                (visible(row.name) for row in rows if row.os_tid == number), f"thread {number}"
            )
            name = f"operators of {thread}"
        else:
            name = f"stream {number}"
            yield name_event(
                "process_name", pid, 0, f"GPU {pid % _DEVICES}, {process_title(self._process)}"
            )
        yield name_event(
            "thread_name", pid, tid + lane * _IDS, f"{name} ({lane + 1})" if lane else name
        )

    def _track(self, event: TorchEvent, *, on_device: bool) -> Track:
        tid = _LANES_TID + _number(event.tid)
        if not on_device:
            return self._process.pid, tid
        return _IDS + self._process.id * _DEVICES + _number(event.pid) % _DEVICES, tid

    def _flow(self, event: TorchEvent) -> Event:
        """Return an arrow's end: from forward to backward, or from a launch to its work."""
        pid, tid = self._track(event, on_device=event.cat == "ac2g" and event.ph == "f")
        own = event.id if isinstance(event.id, int) else _number(event.id)
        id = self._window.id << 32 | own & 0xFFFFFFFF
        place = {
            "pid": pid,
            "tid": tid,
            "ts": microseconds(self._reader, self._trace.start_ns(event)),
        }
        ends = {"bp": "e"} if event.ph == "f" else {}
        return {"ph": event.ph, "cat": event.cat, "name": event.name, "id": id, **place, **ends}

    def _memory(self, event: TorchEvent) -> Iterator[Event]:
        """Yield how much memory torch has allocated, if the trace says so."""
        try:
            memory = msgspec.json.decode(event.args, type=_Memory)
        except msgspec.DecodeError:  # from a version of torch with another format
            return
        if memory.total is not None:
            where = "cpu" if memory.device < 0 else f"cuda:{memory.device}"
            ts = microseconds(self._reader, self._trace.start_ns(event))
            place: Event = {"pid": self._process.pid, "tid": 0, "ts": ts}
            yield {
                "ph": "C",
                "name": f"torch_allocated_bytes {where}",
                **place,
                "args": {"value": memory.total},
            }


def _in_lanes(trace: TorchTrace, events: Iterable[TorchEvent]) -> Iterator[tuple[TorchEvent, int]]:
    """Yield events in order of time, each with its lane.

    It is the first lane in which no event is open, or in which the event lies within the innermost
    open one.
    """
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
