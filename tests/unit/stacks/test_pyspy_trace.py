"""Traces as py-spy writes them, and bytes that are none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.traces import MAIN_TID, ThreadTrace, stack, write_trace

from profd.daemon.stacks import pyspy

A_TO_C = (stack("a"), stack("a", "b"), stack("c"))
stacks = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5).map(
    lambda functions: stack(*functions)
)


def begin(name: str, at_us: int = 0) -> str:
    return (
        f'{{"ph": "B", "tid": 7, "ts": {at_us}, "name": "{name}", "args": {{"filename": '
        '"t.py", '
        f'"line": 1}}}}'
    )


@given(st.lists(stacks, min_size=1, max_size=20))
def test_every_change_comes_back(seen: list[tuple[object, ...]]) -> None:
    changes = [
        (10 * place, frames)
        for place, frames in enumerate(seen)
        if place == 0 or frames != seen[place - 1]
    ]
    end_us = 10 * len(seen)
    (trace,) = pyspy.decode(write_trace(ThreadTrace(changes, end_us)))  # type: ignore[arg-type]
    assert [(change.at_us, change.frames) for change in trace.changes] == [*changes, (end_us, ())]
    assert (trace.os_tid, trace.name) == (MAIN_TID, "MainThread")


def test_threads_differ_by_their_ident_and_have_their_latest_name() -> None:
    main = ThreadTrace([(0, A_TO_C[0]), (20, A_TO_C[1])], 30)
    other = ThreadTrace([(5, A_TO_C[2])], 25, "thread (4250): Thread-1: (pin)", 0x7F11)
    first, second = pyspy.decode(write_trace(main, other))
    assert [change.at_us for change in first.changes] == [0, 20, 30]
    assert (second.ident, second.os_tid, second.name) == (0x7F11, 4250, "Thread-1: (pin)")
    assert [change.at_us for change in second.changes] == [5, 25]
    before = ThreadTrace([(0, A_TO_C[0])], 20, "thread (12)")
    after = ThreadTrace([(20, A_TO_C[1])], 30, "thread (12): feeder")
    (trace,) = pyspy.decode(write_trace(before, after))
    assert (trace.os_tid, trace.name) == (12, "feeder")
    assert [change.at_us for change in trace.changes] == [0, 20, 30]
    (trace,) = pyspy.decode(
        write_trace(ThreadTrace([(0, A_TO_C[0])], 5, "thread (0x1)", (1 << 64) - 1))
    )
    assert 0 <= trace.ident < 1 << 63


@pytest.mark.parametrize(
    ("label", "os_tid", "name"),
    [
        ("thread (0x7F71075C16C0): wkr", None, "wkr"),
        ("thread (12)", 12, ""),
        ("thread (12): two\\nlines", 12, "two\nlines"),
    ],
)
def test_thread_is_named_as_far_as_the_interpreter_tells(
    label: str, os_tid: int | None, name: str
) -> None:
    (trace,) = pyspy.decode(
        write_trace(ThreadTrace([(0, A_TO_C[0])], 5, label.replace("\\n", "\n")))
    )
    assert (trace.os_tid, trace.name) == (os_tid, name)


def test_equal_frames_are_one_object_and_an_unknown_line_is_zero() -> None:
    (trace,) = pyspy.decode(
        write_trace(ThreadTrace([(0, stack("a", "b")), (5, stack()), (9, stack("a", "b"))], 20))
    )
    assert trace.changes[0].frames[2] is trace.changes[2].frames[2]
    data = write_trace(ThreadTrace([(0, stack("a"))], 5))
    (trace,) = pyspy.decode(data.replace(b'"line":10', b'"line":null'))
    assert [frame.line for frame in trace.changes[0].frames] == [96, 0]
    assert pyspy.decode(b'[{"ph": "M", "tid": 1, "ts": 0},' + data[1:]) == pyspy.decode(data)


@pytest.mark.parametrize("part_bytes", [0, 1, 200, 3000])
def test_a_trace_is_the_same_in_parts_of_any_size(
    monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    seen = [stack(*functions) for functions in ("a", "ab", 'a},{"args":', "acd", "", "ab")]
    main = ThreadTrace([(10 * place, frames) for place, frames in enumerate(seen)], 60)
    other = ThreadTrace([(5, stack("b")), (20, stack("c"))], 60, "thread (7): other", 7)
    data = write_trace(main, other)
    whole = pyspy.decode(data)
    decoded: list[int] = []

    def decode(part: bytes) -> list[Any]:
        decoded.append(len(part))
        return whole_decoder.decode(part)

    whole_decoder = pyspy._decoder
    monkeypatch.setattr(pyspy, "_decoder", SimpleNamespace(decode=decode))
    monkeypatch.setattr(pyspy, "_PART_BYTES", part_bytes)
    assert pyspy.decode(data) == whole
    assert len(decoded) > 1
    assert max(decoded) < part_bytes + 300
    for damaged in (data[:-1], data.replace(b"},{", b"}{", 1), data + b"[]"):
        with pytest.raises(pyspy.TraceDamaged):
            pyspy.decode(damaged)


@pytest.mark.parametrize("data", [b"[]", f"[{begin('thread (1)')}]".encode()])
def test_a_trace_without_any_time_has_no_threads(data: bytes) -> None:
    assert pyspy.decode(data) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"\xff\x00",
        b'"trace"',
        b'{"traceEvents": []}',
        b"[" * 100_000,
        b'[{"ph": "B", "tid": 1}]',
        b'[{"ph": "B", "tid": 1, "ts": "0"}]',
        b'[{"ph": "B", "tid": 1, "ts": -1}]',
        b'[{"ph": "B", "tid": 1, "ts": 1e30}]',
        b'[{"ph": "E", "tid": 1, "ts": 0}]',
        b'[{"ph": "B", "tid": 1, "ts": 0, "args": {"line": 9223372036854775807}}]',
        f"[{begin('no thread')}, {begin('f', 3)}]".encode(),
        f"[{begin('thread (1)', 5)}, {begin('f', 4)}]".encode(),
    ],
)
def test_what_is_no_trace_is_damaged(data: bytes) -> None:
    with pytest.raises(pyspy.TraceDamaged):
        pyspy.decode(data)
