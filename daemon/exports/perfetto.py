"""A run as one timeline for ui.perfetto.dev and chrome://tracing: the Trace Event Format, as JSON.

Each thread has a track of its Python frames, the main threads one of their phases too; series are counters, events are
marks; the windows of torch.profiler have tracks of their own (``windowtracks``). Times are microseconds since the run's
start; ``baseTimeNanoseconds`` is that start, as in torch's own traces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import selected_intervals
from profd.daemon.analyze.selection import Selection
from profd.daemon.exports.windowtracks import Event, microseconds, name_event, slice_event, window_events
from profd.daemon.render.plaintext import process_title, visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, IntervalRow

HOST_PID = 0
"""The process that stands for the host, its counters and GPUs: no process of a run has this PID."""
_PHASE_TID = 1 << 31
"""Added to the id of a main thread for the track of its phases; above any id of Linux."""
_LONGEST_GAP_NS = 50_000_000
"""Shorter than this between two stacks, as where a torn one was dropped, a frame that is in both goes on."""


def perfetto(reader: RunReader, selection: Selection) -> bytes:
    trace = {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": reader.info.started_ns,
        "otherData": {"run": visible(reader.info.id), "command": visible(" ".join(reader.info.command))},
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
    for thread in intervals:
        row = reader.threads[thread]
        pid = reader.processes[row.process].pid
        yield name_event("thread_name", pid, row.os_tid, visible(row.name))
        if row.is_main:
            yield name_event("thread_name", pid, _PHASE_TID + row.os_tid, "phases")
    for thread, run in intervals.items():
        row = reader.threads[thread]
        pid = reader.processes[row.process].pid
        yield from _frame_slices(reader, run, {"pid": pid, "tid": row.os_tid})
        if row.is_main:
            yield from _phase_slices(reader, run, phases, {"pid": pid, "tid": _PHASE_TID + row.os_tid})
    yield from _counters(reader, selection)
    for event in reader.events():
        happened_to = reader.processes.get(event.process) if event.process is not None else None
        yield {
            "ph": "i",
            "s": "g" if happened_to is None else "p",
            "cat": "event",
            "name": visible(f"{event.kind}: {event.text}"),
            "pid": HOST_PID if happened_to is None else happened_to.pid,
            "tid": 0,
            "ts": microseconds(reader, event.at_ns),
        }
    yield from window_events(reader, selection)


def _frame_slices(reader: RunReader, intervals: list[IntervalRow], place: Event) -> Iterator[Event]:
    """Yield the frames of a thread as nested slices: one goes on as long as stack after stack begins with it."""
    open_frames: list[tuple[FrameRow, int]] = []

    def close(depth: int, at_ns: int) -> Iterator[Event]:
        """End all frames from a depth on, the innermost first."""
        while len(open_frames) > depth:
            frame, start_ns = open_frames.pop()
            args = {"file": visible(frame.module_path), "line": frame.line}
            yield {**slice_event(reader, visible(frame.function), "python", start_ns, at_ns), **place, "args": args}

    end_ns = 0
    for interval in intervals:
        if interval.start_ns - end_ns > _LONGEST_GAP_NS:
            yield from close(0, end_ns)
        frames, kept = reader.frames_of(interval.stack), 0
        for frame, (known, _) in zip(frames, open_frames, strict=False):
            # A frame that is at another line goes on.
            if (frame.function, frame.file) != (known.function, known.file):
                break
            kept += 1
        yield from close(kept, interval.start_ns)
        open_frames += [(frame, interval.start_ns) for frame in frames[kept:]]
        end_ns = interval.end_ns
    yield from close(0, end_ns)


def _phase_slices(reader: RunReader, intervals: list[IntervalRow], phases: PhaseIndex, place: Event) -> Iterator[Event]:
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
    """Yield the series of processes, devices and the host: each value where it begins to hold, as counters go on."""
    begin_ns = reader.info.started_ns if selection.from_ns is None else selection.from_ns
    end_ns = reader.info.end_ns if selection.to_ns is None else selection.to_ns
    for series in reader.series.values():
        process = None if series.process is None else reader.processes[series.process]
        if series.os_tid is not None or (process is not None and not selection.takes_process(process)):
            continue
        name = series.name if series.device is None else f"{series.name} {visible(series.device)}"
        pid = HOST_PID if process is None else process.pid
        for step in reader.steps(series.id, begin_ns, end_ns).clipped(begin_ns, end_ns):
            ts = microseconds(reader, step.start_ns)
            yield {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": ts, "args": {"value": step.value}}
