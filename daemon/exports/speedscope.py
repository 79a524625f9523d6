"""Samples for speedscope, as https://speedscope.app opens them.

There is one profile per thread, with its stacks in order of time. An empty stack fills the times in
which nothing is known of a thread: between two recordings, or if a stack was dropped.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from profd.daemon.analyze.profile import selected_intervals
from profd.daemon.analyze.selection import Selection
from profd.daemon.render.plaintext import process_title, visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(reader: RunReader, selection: Selection) -> bytes:
    """Return the samples of a selection as a speedscope file.

    Times are ns since the run's start.
    """
    intervals: defaultdict[int, list[IntervalRow]] = defaultdict(list)
    for interval in selected_intervals(reader, selection, selection.threads(reader)):
        intervals[interval.thread].append(interval)
    stacks, frames, profiles = dict[int, list[int]](), dict[int, int](), []
    for thread, run in sorted(intervals.items()):
        samples, weights = list[list[int]](), list[int]()
        at_ns, row = run[0].start_ns, reader.threads[thread]
        process = reader.processes[row.process]
        for interval in run:
            if interval.start_ns > at_ns:
                samples.append([])
                weights.append(interval.start_ns - at_ns)
            if interval.stack not in stacks:
                ids = (frame.id for frame in reader.frames_of(interval.stack))
                stacks[interval.stack] = [frames.setdefault(frame, len(frames)) for frame in ids]
            samples.append(stacks[interval.stack])
            weights.append(interval.duration_ns)
            at_ns = interval.end_ns
        name = f"{process_title(process)} ({process.pid}) · {visible(row.name)}"
        start_ns, end_ns = run[0].start_ns - reader.info.started_ns, at_ns - reader.info.started_ns
        times = {"unit": "nanoseconds", "startValue": start_ns, "endValue": end_ns}
        profiles.append(
            {"type": "sampled", "name": name, **times, "samples": samples, "weights": weights}
        )
    rows = (reader.frames[frame] for frame in frames)
    shown = [
        {"name": visible(row.function), "file": visible(row.module_path), "line": row.line}
        for row in rows
    ]
    exporter = f"profd {reader.info.versions.get('profd', '')}".strip()
    about = {
        "$schema": SCHEMA,
        "name": visible(reader.info.id),
        "exporter": exporter,
        "activeProfileIndex": 0,
    }
    return msgspec.json.encode({**about, "shared": {"frames": shown}, "profiles": profiles})
