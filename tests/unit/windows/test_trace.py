"""What is read of a trace file, whole, packed or damaged."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from io import BytesIO

import msgspec
import pytest
from support.kinetotraces import TraceScript

from profd.daemon.windows import trace
from profd.daemon.windows.reduction import reduce
from profd.daemon.windows.trace import Trace, TraceUnreadable, decode, find_steps, read_text

TRACE = b"""{"schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000, "unknown": {"a": [1]}, "traceEvents": [
 {"ph": "M", "name": "process_name", "ts": 12.5, "pid": 7, "tid": 0, "args": {"name": "python"}},
 {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 8, "ts": 13.001, "dur": 2.5,
  "args": {"External id": 4, "Input Dims": [[2, 3], []], "Anything": null}},
 {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 20.000}
]}"""


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_trace_is_read_packed_or_not(pack: Callable[[bytes], bytes]) -> None:
    read = decode(read_text(BytesIO(pack(TRACE))))
    assert read.base_ns == 1790857026000000000
    assert [(event.name, event.ph) for event in read.events] == [
        ("process_name", "M"),
        ("aten::add", "X"),
        ("Record Window End", "i"),
    ]
    operator = read.events[1]
    assert (operator.cat, operator.pid, operator.tid, operator.ts, operator.dur) == (
        "cpu_op",
        7,
        8,
        13.001,
        2.5,
    )
    assert bytes(operator.args.external_id) == b"4"
    assert bytes(operator.args.input_dims) == b"[[2, 3], []]"


def test_names_and_sums_that_no_run_file_holds_are_no_trace() -> None:
    read = decode(TRACE.replace(b"aten::add", b"aten::\xff"))
    assert read.events[1].name == "aten::�"
    script = TraceScript()
    for thread in range(12):
        script.op("aten::add", 1, 9e14, tid=thread)
    with pytest.raises(TraceUnreadable, match="its sums are larger"):
        reduce(BytesIO(script.text()), begins_with_step=False)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no trace",
        b"[]",
        b"{}",
        TRACE[:-40],
        TRACE.replace(b"12.5", b"nan"),
        b'{"traceEvents":' + b"[" * 100_000,
    ],
    ids=["empty", "text", "list", "no events", "cut off", "nan", "deep"],
)
def test_damaged_trace_is_said_to_be_one(text: bytes) -> None:
    with pytest.raises(TraceUnreadable, match="the trace is damaged"):
        decode(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("baseTimeNanoseconds", 1 << 63),
        ("baseTimeNanoseconds", -1),
        ("ts", 1e300),
        ("ts", -1e300),
        ("dur", 1e300),
    ],
)
def test_a_time_that_no_run_file_holds_is_damage(field: str, value: float) -> None:
    assert far(field, 5)
    with pytest.raises(TraceUnreadable, match="the trace is damaged"):
        far(field, value)


def far(field: str, value: float) -> Trace:
    """Return the trace of one operator in which a field has a value."""
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1.0, "dur": 2.0}
    whole: dict[str, object] = {"traceEvents": [operator], "baseTimeNanoseconds": 3}
    (operator if field in operator else whole)[field] = value
    return decode(msgspec.json.encode(whole))


@pytest.mark.parametrize(
    "data",
    [gzip.compress(TRACE)[:-12], gzip.compress(TRACE)[:30] + b"\xff" * 40],
    ids=["cut-off", "damaged"],
)
def test_damaged_packing_is_said(data: bytes) -> None:
    with pytest.raises(TraceUnreadable, match="the trace cannot be read"):
        read_text(BytesIO(data))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_trace_that_would_fill_the_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(trace, "LIMIT_BYTES", len(TRACE) - 1)
    with pytest.raises(TraceUnreadable, match="larger than"):
        read_text(BytesIO(pack(TRACE)))


ADAM, SGD = "Optimizer.step#Adam.step", "Optimizer.step#SGD.step"


def steps_of(script: TraceScript, begun_ns: int | None = None) -> list[tuple[int, ...]]:
    return [(step.start_ns, step.end_ns) for step in find_steps(script.spans(), begun_ns)]


def test_steps_are_marked_or_last_from_update_to_update_of_the_busier_optimizer() -> None:
    script = (
        TraceScript().op("ProfilerStep#4", 10, 5, cat="user_annotation").op("ProfilerStep#3", 0, 10)
    )
    script.op(ADAM, 8, 1).op(ADAM, 12, 1)
    assert steps_of(script) == [(0, 10_000), (10_000, 15_000)]
    script = TraceScript().op(ADAM, 8, 1).op(ADAM, 20, 2).op(ADAM, 30, 3)
    assert steps_of(script) == [(9_000, 22_000), (22_000, 33_000)]
    assert steps_of(script, begun_ns=1_000)[0] == (1_000, 9_000)
    script = TraceScript().op(SGD, 8, 1).op(ADAM, 10, 2).op(SGD, 20, 1).op(SGD, 30, 1)
    assert steps_of(script) == [(9_000, 21_000), (21_000, 31_000)]
    assert steps_of(TraceScript().op("aten::add", 0, 1), begun_ns=0) == []


def test_times_may_count_from_the_epoch() -> None:
    script = (
        TraceScript()
        .op("aten::add", 1_795_484_500_000_000, 7)
        .op("aten::mul", 1_795_484_500_000_009, 1)
    )
    reduction = reduce(BytesIO(script.text()), begins_with_step=True)
    assert (reduction.start_ns, reduction.end_ns) == (
        1_795_484_500_000_000_000,
        1_795_484_500_000_010_000,
    )
