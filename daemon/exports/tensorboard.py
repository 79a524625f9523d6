"""The windows of a run as torch's own traces in a folder, one file per rank.

They are for TensorBoard's plugin and for HTA (Holistic Trace Analysis). Both read
``WORKER.SPAN.pt.trace.json``. HTA needs to know the rank, and both find steps by ranges named
``ProfilerStep#N``. If torch wrote a window without these, they are added from what the run knows;
the rest stays as it was.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.torchtraces import (
    TorchTrace,
    decode,
    last_windows,
    trace_text,
)
from profd.daemon.clock import MICROSECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.frameworks.kineto import parse
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import WindowRow

_STEP = "ProfilerStep#"


def tensorboard_files(reader: RunReader, selection: Selection) -> Mapping[str, bytes]:
    """Return the traces of the windows of the last request.

    They are gzipped, by the names of their files. Raises UsageError if the selection has none,
    RunUnreadable if one is damaged.
    """
    files = {}
    for window in last_windows(reader, selection):
        if window.kept_bytes is not None and (text := trace_text(reader, window)) is not None:
            process, span = (
                reader.processes[window.process],
                window.start_ns // MICROSECOND_NS // 1000,
            )
            worker = f"pid{process.pid}" if process.rank is None else f"rank{process.rank}"
            content = gzip.compress(_complete(reader, window, text), 1, mtime=0)
            files[f"{worker}.{span}.pt.trace.json.gz"] = content
    if not files:
        raise UsageError(
            "no window with its trace is in this selection", "take one: profd window RUN"
        )
    return files


def _complete(reader: RunReader, window: WindowRow, text: bytes) -> bytes:
    """Return a trace with its rank and its steps, each added only if torch has not written it."""
    trace = decode(window, text)
    parts = parse(text, dict[str, msgspec.Raw])
    # HTA searches for the text of the rank, with a space before the number, from the start of the
    # file on.
    ranks = {process.rank for process in reader.processes.values() if process.rank is not None}
    rank = reader.processes[window.process].rank or 0
    info = {"rank": rank, "world_size": max(len(ranks), 1), "backend": "unknown"}
    parts = {"distributedInfo": msgspec.Raw(json.dumps(info).encode()), **parts}
    if not any(event.name.startswith(_STEP) for event in trace.events):
        steps = [msgspec.json.encode(step) for step in _steps(reader, window, trace)]
        events = bytes(parts["traceEvents"]).rstrip().removesuffix(b"]").rstrip()
        first = b"" if events.endswith(b"[") or not steps else b","
        parts["traceEvents"] = msgspec.Raw(events + first + b",".join(steps) + b"]")
    return msgspec.json.encode(parts)


def _steps(reader: RunReader, window: WindowRow, trace: TorchTrace) -> Iterator[dict[str, object]]:
    """Yield the whole steps that the run knows of, on the thread that calls most operators."""
    threads = Counter((event.pid, event.tid) for event in trace.events if event.cat == "cpu_op")
    ((pid, tid), _), *_ = threads.most_common(1) or [((reader.processes[window.process].pid, 0), 0)]
    for number, step in enumerate(reader.window_steps(window.id)):
        ts, dur = (
            (step.start_ns - trace.base_ns) / MICROSECOND_NS,
            (step.end_ns - step.start_ns) / MICROSECOND_NS,
        )
        place = {
            "pid": pid,
            "tid": tid,
            "ts": ts,
            "dur": dur,
            "args": {"External id": 0, "Ev Idx": 0},
        }
        yield {"ph": "X", "cat": "user_annotation", "name": f"{_STEP}{number}", **place}
