"""What is read of a trace file, whole, packed or damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from profd.daemon.windows import trace
from profd.daemon.windows.trace import Trace, TraceUnreadable, decode, read_trace

TRACE = b"""{"schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000, "unknown": {"a": [1]}, "traceEvents": [
 {"ph": "M", "name": "process_name", "ts": 12.5, "pid": 7, "tid": 0, "args": {"name": "python"}},
 {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 8, "ts": 13.001, "dur": 2.5,
  "args": {"External id": 4, "Input Dims": [[2, 3], []], "Anything": null}},
 {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 20.000}
]}"""


def test_trace_is_read_plain(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(TRACE)
    check(read_trace(tmp_path / "t.json"))


def test_trace_is_read_packed_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(gzip.compress(TRACE))
    check(read_trace(tmp_path / "t.json"))


def check(read: Trace) -> None:
    assert read.base_ns == 1790857026000000000
    assert [(event.name, event.ph) for event in read.events] == [
        ("process_name", "M"),
        ("aten::add", "X"),
        ("Record Window End", "i"),
    ]
    operator = read.events[1]
    assert (operator.cat, operator.pid, operator.tid, operator.ts, operator.dur) == ("cpu_op", 7, 8, 13.001, 2.5)
    assert bytes(operator.args.external_id) == b"4"
    assert bytes(operator.args.input_dims) == b"[[2, 3], []]"
    assert bytes(operator.args.concrete_inputs) == b""


def test_name_that_is_no_text_does_not_cost_the_trace() -> None:
    read = decode(TRACE.replace(b"aten::add", b"aten::\xff"))
    assert read.events[1].name == "aten::�"


@pytest.mark.parametrize(
    "text",
    [b"", b"no trace", b"[]", b"{}", TRACE[:-40], TRACE.replace(b"12.5", b"nan"), b'{"traceEvents":' + b"[" * 100_000],
    ids=["empty", "text", "list", "no events", "cut off", "nan", "deep"],
)
def test_damaged_trace_is_said_to_be_one(text: bytes) -> None:
    with pytest.raises(TraceUnreadable, match="the trace is damaged"):
        decode(text)


def test_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceUnreadable, match=r"t\.json cannot be read"):
        read_trace(tmp_path / "t.json")


@pytest.mark.parametrize("data", [gzip.compress(TRACE)[:-12], gzip.compress(TRACE)[:30] + b"\xff" * 40])
def test_damaged_packing_is_said(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.json.gz").write_bytes(data)
    with pytest.raises(TraceUnreadable, match=r"t\.json\.gz cannot be read"):
        read_trace(tmp_path / "t.json.gz")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_trace_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: type[bytes]
) -> None:
    monkeypatch.setattr(trace, "LIMIT_BYTES", len(TRACE) - 1)
    (tmp_path / "t.json").write_bytes(pack(TRACE))
    with pytest.raises(TraceUnreadable, match="larger than"):
        read_trace(tmp_path / "t.json")
