"""A run as one timeline for ui.perfetto.dev and chrome://tracing: the Trace Event Format, as JSON.

Each thread has a track of its Python frames, the main threads one of their phases too; series are counters, events are
marks; the windows of torch.profiler have tracks of their own (``windowtracks``). Times are microseconds since the run's
start; ``baseTimeNanoseconds`` is that start, as in torch's own traces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import selected_intervals
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import MICROSECOND_NS
from profd.daemon.exports.windowtracks import window_events
from profd.daemon.render.plaintext import process_title, visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, IntervalRow

HOST_PID = 0
"""The process that stands for the host, its counters and GPUs: no process of a run has this PID."""
_PHASE_TID = 1 << 31
"""Added to the id of a main thread for the track of its phases; above any id of Linux."""
_LONGEST_GAP_NS = 50_000_000
"""Shorter than this between two stacks, as where a torn one was dropped, a frame that is in both goes on."""

Event = dict[str, object]


def perfetto(reader: RunReader, selection: Selection) -> bytes:
    """Return a selection as a trace."""
    trace = {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": reader.info.started_ns,
        "otherData": {"run": visible(reader.info.id), "command": visible(" ".join(reader.info.command))},
        "traceEvents": list(_events(reader, selection)),
    }
    return msgspec.json.encode(trace)


def _events(reader: RunReader, selection: Selection) -> Iterator[Event]:
    phases = PhaseIndex(reader)
    pieces: defaultdict[int, list[IntervalRow]] = defaultdict(list)
    for piece in selected_intervals(reader, selection, selection.threads(reader), phases):
        pieces[piece.thread].append(piece)
    yield from _names(reader, pieces.keys())
    for thread, run in pieces.items():
        row = reader.threads[thread]
        place: Event = {"pid": reader.processes[row.process].pid, "tid": row.os_tid}
        yield from _FrameSlices(reader, place).take(run)
        if row.is_main:
            yield from _phase_slices(reader, run, phases, {**place, "tid": _PHASE_TID + row.os_tid})
    yield from _counters(reader, selection)
    yield from _marks(reader)
    yield from window_events(reader, selection)


def _names(reader: RunReader, threads: Iterable[int]) -> Iterator[Event]:
    """Yield what processes and tracks are called."""
    yield _metadata("process_name", HOST_PID, 0, "host")
    for process in reader.processes.values():
        yield _metadata("process_name", process.pid, 0, process_title(process))
    for thread in threads:
        row = reader.threads[thread]
        pid = reader.processes[row.process].pid
        yield _metadata("thread_name", pid, row.os_tid, visible(row.name))
        if row.is_main:
            yield _metadata("thread_name", pid, _PHASE_TID + row.os_tid, "phases")


def _metadata(name: str, pid: int, tid: int, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {"name": value}}


class _FrameSlices:
    """The frames of one thread as nested slices: a frame goes on as long as stack after stack begins with it."""

    def __init__(self, reader: RunReader, place: Event) -> None:
        self._reader = reader
        self._place = place
        self._open: list[tuple[FrameRow, int]] = []

    def take(self, pieces: list[IntervalRow]) -> Iterator[Event]:
        """Yield the slices of a thread's pieces, which are in order of time."""
        end_ns = 0
        for piece in pieces:
            if piece.start_ns - end_ns > _LONGEST_GAP_NS:
                yield from self._close(0, end_ns)
            frames = self._reader.frames_of(piece.stack)
            kept = self._common(frames)
            yield from self._close(kept, piece.start_ns)
            self._open += [(frame, piece.start_ns) for frame in frames[kept:]]
            end_ns = piece.end_ns
        yield from self._close(0, end_ns)

    def _common(self, frames: tuple[FrameRow, ...]) -> int:
        """Return how many of the open frames a stack begins with; a frame that is at another line goes on."""
        for depth, (frame, (known, _)) in enumerate(zip(frames, self._open, strict=False)):
            if (frame.function, frame.file) != (known.function, known.file):
                return depth
        return min(len(frames), len(self._open))

    def _close(self, depth: int, at_ns: int) -> Iterator[Event]:
        """End all frames from a depth on, the innermost first."""
        while len(self._open) > depth:
            frame, start_ns = self._open.pop()
            args = {"file": visible(frame.module_path), "line": frame.line}
            yield self._slice(visible(frame.function), start_ns, at_ns, args)

    def _slice(self, name: str, start_ns: int, end_ns: int, args: Event) -> Event:
        return {**_slice(self._reader, name, start_ns, end_ns, "python"), **self._place, "args": args}


def _phase_slices(reader: RunReader, pieces: list[IntervalRow], phases: PhaseIndex, place: Event) -> Iterator[Event]:
    """Yield the phases of a main thread, each as long as it lasts."""
    name, start_ns, end_ns = "", 0, 0
    for piece in pieces:
        phase = phases.of_stack(piece.stack)
        if phase != name or piece.start_ns - end_ns > _LONGEST_GAP_NS:
            if name:
                yield {**_slice(reader, name, start_ns, end_ns, "phase"), **place}
            name, start_ns = phase, piece.start_ns
        end_ns = piece.end_ns
    if name:
        yield {**_slice(reader, name, start_ns, end_ns, "phase"), **place}


def _slice(reader: RunReader, name: str, start_ns: int, end_ns: int, category: str) -> Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": _us(reader, start_ns),
        "dur": (end_ns - start_ns) / MICROSECOND_NS,
    }


def _counters(reader: RunReader, selection: Selection) -> Iterator[Event]:
    """Yield the series of processes, devices and the host: each value where it begins to hold, as counters go on."""
    for series in reader.series.values():
        process = None if series.process is None else reader.processes[series.process]
        if series.os_tid is not None or (process is not None and not selection.takes_process(process)):
            continue
        name = series.name if series.device is None else f"{series.name} {visible(series.device)}"
        pid = HOST_PID if process is None else process.pid
        begin_ns = reader.info.started_ns if selection.from_ns is None else selection.from_ns
        end_ns = reader.info.end_ns if selection.to_ns is None else selection.to_ns
        for step in reader.steps(series.id, begin_ns, end_ns).clipped(begin_ns, end_ns):
            ts = _us(reader, step.start_ns)
            yield {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": ts, "args": {"value": step.value}}


def _marks(reader: RunReader) -> Iterator[Event]:
    """Yield the events of the run."""
    for event in reader.events():
        process = reader.processes.get(event.process) if event.process is not None else None
        yield {
            "ph": "i",
            "s": "g" if process is None else "p",
            "cat": "event",
            "name": visible(f"{event.kind}: {event.text}"),
            "pid": HOST_PID if process is None else process.pid,
            "tid": 0,
            "ts": _us(reader, event.at_ns),
        }


def _us(reader: RunReader, at_ns: int) -> float:
    """Return a time as microseconds since the run's start."""
    return (at_ns - reader.info.started_ns) / MICROSECOND_NS
