"""The windows of a run on its timeline: every track is there, at its time, and what is written is a
valid timeline.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from support import traceevents
from support.synthetic import MAIN, STARTED_NS, main_process, write_records

from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import RunUnreadable
from profd.daemon.exports.perfetto import perfetto
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import WindowStep, WindowTaken

AT_US = 1_000_000.0
PID = MAIN.pid


def event(ph: str, name: str, ts: float, dur: float = 0.0, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "ph": ph,
        "name": name,
        "pid": PID,
        "tid": PID,
        "ts": AT_US + ts,
        "cat": "cpu_op",
    }
    return {**fields, **({"dur": dur} if ph == "X" else {}), **more}


TRACE = [
    event("X", "aten::linear", 10, 50, args={"Input Dims": [[2, 3]]}),
    event("X", "aten::addmm", 20.125, 30.25),
    event("X", "LinearBackward0", 70, 20, tid=PID + 1),
    event("X", "range begun elsewhere", 80, 30, tid=PID + 1),  # overlaps, and lies in nothing
    event("X", "sgemm", 30, 100, cat="kernel", pid=0, tid=7),
    event("X", "Memcpy HtoD", 50, 20, cat="gpu_memcpy", pid=0, tid=9),
    event("s", "fwdbwd", 10, cat="fwdbwd", id=5),
    event("f", "fwdbwd", 70, cat="fwdbwd", id=5, tid=PID + 1, bp="e"),
    event("s", "ac2g", 25, cat="ac2g", id=6),
    event("f", "ac2g", 30, cat="ac2g", id=6, pid=0, tid=7, bp="e"),
    event("i", "[memory]", 21, s="t", args={"Total Allocated": 4096, "Device Id": -1, "Bytes": 4}),
    event("i", "[memory]", 22, s="t", args={"Total Allocated": 8192, "Device Id": 0, "Bytes": 4}),
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 1},
    {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "ts": 1, "args": {"name": "python"}},
    {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9},
]  # fmt: skip


def write_run(path: Path, trace: bytes | None = None) -> Path:
    text = msgspec.json.encode({"baseTimeNanoseconds": STARTED_NS, "traceEvents": TRACE})
    taken = WindowTaken(
        MAIN,
        at_ns=STARTED_NS + 2_000_000_000,
        source="gdb",
        asked_ns=STARTED_NS,
        start_ns=STARTED_NS + 1_000_010_000,
        end_ns=STARTED_NS + 1_000_130_000,
        steps=(WindowStep(STARTED_NS + 1_000_010_000, STARTED_NS + 1_000_100_000),),
        trace_bytes=len(text),
        trace=trace or gzip.compress(text),
    )
    failed = WindowTaken(MAIN, STARTED_NS, "gdb", STARTED_NS + 1, error="it ended")
    return write_records(path, [main_process(), taken, failed])


def test_every_track_of_a_window_is_there_at_its_time_and_arrows_lead_to_what_was_caused(
    tmp_path: Path,
) -> None:
    with RunReader(write_run(tmp_path / "run.profd")) as reader:
        events = json.loads(perfetto(reader, Selection()))["traceEvents"]
    traceevents.check(events)
    inner = next(event for event in events if event["name"] == "aten::addmm")
    assert (inner["ts"], inner["dur"]) == (1_000_020.125, 30.25)
    assert inner["pid"] == PID
    outer = next(event for event in events if event["name"] == "aten::linear")
    assert outer["args"] == {"Input Dims": [[2, 3]]}
    counters = {event["name"]: event["args"]["value"] for event in events if event["ph"] == "C"}
    assert counters == {"torch_allocated_bytes cpu": 4096, "torch_allocated_bytes cuda:0": 8192}
    named = [event for event in events if event["ph"] == "M" and event["name"] == "thread_name"]
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in named}
    tracks: dict[str, list[str]] = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault(names[event["pid"], event["tid"]], []).append(event["name"])
    assert tracks == {
        "window": ["window by gdb", "step 1"],
        f"operators of thread {PID}": ["aten::linear", "aten::addmm"],
        f"operators of thread {PID + 1}": ["LinearBackward0"],
        f"operators of thread {PID + 1} (2)": ["range begun elsewhere"],
        "stream 7": ["sgemm"],
        "stream 9": ["Memcpy HtoD"],
    }
    processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {"host", "main", "GPU 0, main"}
    # From forward to backward, and from a launch to its kernel.
    ends = {
        (end["name"], end["ph"]): names[end["pid"], end["tid"]]
        for end in events
        if end["ph"] in "sf"
    }
    assert ends == {
        ("fwdbwd", "s"): f"operators of thread {PID}",
        ("fwdbwd", "f"): f"operators of thread {PID + 1}",
        ("ac2g", "s"): f"operators of thread {PID}",
        ("ac2g", "f"): "stream 7",
    }


@pytest.mark.parametrize(
    "selection", [Selection(to_ns=STARTED_NS + 1), Selection(from_ns=STARTED_NS + 2_000_000_000)]
)
def test_window_outside_of_the_range_is_left_out(selection: Selection, tmp_path: Path) -> None:
    with RunReader(write_run(tmp_path / "run.profd")) as reader:
        shown = json.loads(perfetto(reader, selection))["traceEvents"]
    assert Counter(event["ph"] for event in shown)["X"] == 0


@pytest.mark.parametrize(
    "trace",
    [b"junk", gzip.compress(b"{"), gzip.compress(b'{"traceEvents": []}')[:-9]],
    ids=["junk", "no-json", "cut-off"],  # not the bytes: gzip writes the time into them
)
def test_damaged_trace_is_said(trace: bytes, tmp_path: Path) -> None:
    with (
        RunReader(write_run(tmp_path / "run.profd", trace)) as reader,
        pytest.raises(RunUnreadable, match="the trace of window 1 is damaged"),
    ):
        perfetto(reader, Selection())
