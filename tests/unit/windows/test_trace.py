"""What is read of a trace file, whole, packed or damaged."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from io import BytesIO

import msgspec
import pytest
from support.kinetotraces import TraceScript

from profd.daemon.windows import reduction, trace
from profd.daemon.windows.reduction import reduce
from profd.daemon.windows.spans import find_steps
from profd.daemon.windows.trace import Event, TraceReader, TraceRest, TraceUnreadable, read_text

TRACE = b"""{"schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000, "unknown": {"a": [1]}, "traceEvents": [
 {"ph": "M", "name": "process_name", "ts": 12.5, "pid": 7, "tid": 0, "args": {"name": "python"}},
 {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 8, "ts": 13.001, "dur": 2.5,
  "args": {"External id": 4, "Input Dims": [[2, 3], []], "Anything": null}},
 {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 20.000}
]}"""


def read(text: bytes, part_bytes: int = 1 << 20) -> tuple[list[Event], TraceRest]:
    """Return the events of a trace, which comes in parts, and what is around them."""
    reader = TraceReader(text[at : at + part_bytes] for at in range(0, len(text), part_bytes))
    return [one for some in reader for one in some], reader.rest


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_trace_is_read_packed_or_not(pack: Callable[[bytes], bytes]) -> None:
    events, frame = read(b"".join(read_text(BytesIO(pack(TRACE)))))
    assert frame.base_ns == 1790857026000000000
    assert [(event.name, event.ph) for event in events] == [
        ("process_name", "M"),
        ("aten::add", "X"),
        ("Record Window End", "i"),
    ]
    operator = events[1]
    assert (operator.cat, operator.pid, operator.tid, operator.ts, operator.dur) == (
        "cpu_op",
        7,
        8,
        13.001,
        2.5,
    )
    assert bytes(operator.args.external_id) == b"4"
    assert bytes(operator.args.input_dims) == b"[[2, 3], []]"


NESTED = {"of": [{"a": "}, {"}, {"b": '"}, {'}, {"c": [{}, {}, {}]}]}


@pytest.mark.parametrize("part_bytes", [1, 7, 100, 1000])
@pytest.mark.parametrize("indent", [None, 2])
def test_events_are_the_same_however_a_trace_comes(part_bytes: int, indent: int | None) -> None:
    """What looks like the end of an event may stand within one, and in a text."""
    events = [
        {"ph": "X", "name": f"a}},{{ {number}", "ts": number, "args": NESTED} for number in range(9)
    ]
    whole = {"props": [{}, {"x": []}], "traceEvents": events, "z": [{}, {}], "cupti_version": 9}
    text = json.dumps(whole, indent=indent).encode()
    found, frame = read(text, part_bytes)
    assert [(one.name, one.ts) for one in found] == [(one["name"], one["ts"]) for one in events]
    assert bytes(frame.cupti) == b"9"


def test_events_are_there_before_the_trace_is_whole_and_none_are_kept() -> None:
    """A trace takes as much memory as one of its parts, however large it is."""
    taken = []

    def parts() -> Iterator[bytes]:
        for number in range(100):
            taken.append(number)
            yield b'%b{"ph": "X", "ts": %d},{"ph":' % (
                b"" if number else b'{"traceEvents":[',
                number,
            )
            yield b' "X", "ts": %d}%b' % (number, b"," if number < 99 else b"]}")

    reader = TraceReader(parts())
    for events in reader:
        assert all(taken[-1] - event.ts <= 1 for event in events)
    assert len(taken) == 100
    assert len(reader.rest.events) <= 2


def test_a_trace_without_an_end_is_given_up() -> None:
    """Nothing that a process writes takes all of the memory."""
    endless = itertools.chain([b'{"traceEvents":[{"ph":"'], itertools.repeat(b"a" * (1 << 20), 99))
    with pytest.raises(TraceUnreadable, match="the trace is damaged"):
        list(TraceReader(endless))
    assert len(list(endless)) > 80


def test_names_and_sums_that_no_run_file_holds_are_no_trace() -> None:
    events, _ = read(TRACE.replace(b"aten::add", b"aten::\xff"))
    assert events[1].name == "aten::�"
    script = TraceScript()
    for thread in range(12):
        script.op("aten::add", 1, 9e14, tid=thread)
    with pytest.raises(TraceUnreadable, match="its sums are larger"):
        reduce(BytesIO(script.text()), begins_with_step=False)


def test_work_that_takes_longer_than_any_machine_counts_is_no_trace() -> None:
    script = TraceScript()
    for _ in range(3):
        script.op("sgemm", 1, 4e15, cat="kernel")
    with pytest.raises(TraceUnreadable, match="cannot be summed up"):
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
        read(text)


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


def far(field: str, value: float) -> TraceRest:
    """Return the trace of one operator in which a field has a value."""
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1.0, "dur": 2.0}
    whole: dict[str, object] = {"traceEvents": [operator], "baseTimeNanoseconds": 3}
    (operator if field in operator else whole)[field] = value
    return read(msgspec.json.encode(whole))[1]


@pytest.mark.parametrize(
    "data",
    [gzip.compress(TRACE)[:-12], gzip.compress(TRACE)[:30] + b"\xff" * 40],
    ids=["cut-off", "damaged"],
)
def test_damaged_packing_is_said(data: bytes) -> None:
    with pytest.raises(TraceUnreadable, match="the trace cannot be read"):
        list(read_text(BytesIO(data)))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_trace_that_would_fill_the_disk_is_refused(
    monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(trace, "LIMIT_BYTES", len(TRACE) - 1)
    with pytest.raises(TraceUnreadable, match="larger than"):
        list(read_text(BytesIO(pack(TRACE))))
    monkeypatch.setattr(trace, "LIMIT_BYTES", len(TRACE))
    assert b"".join(read_text(BytesIO(pack(TRACE)))) == TRACE


@pytest.mark.parametrize(("limit", "is_kept"), [(10, False), (1 << 20, True)])
def test_a_trace_that_packs_badly_is_summed_up_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, limit: int, is_kept: bool
) -> None:
    monkeypatch.setattr(reduction, "KEPT_BYTES", limit)
    found = reduce(BytesIO(TRACE), begins_with_step=False)
    assert (found.trace_bytes, found.trace is not None) == (len(TRACE), is_kept)
    assert found.trace is None or gzip.decompress(found.trace) == TRACE


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
    found = reduce(BytesIO(script.text()), begins_with_step=True)
    assert (found.start_ns, found.end_ns) == (
        1_795_484_500_000_000_000,
        1_795_484_500_000_010_000,
    )


def test_without_a_folder_for_temporary_files_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(TraceUnreadable, match="No usable temporary directory"):
        reduce(BytesIO(TRACE), begins_with_step=False)
