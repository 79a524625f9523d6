"""Traces as py-spy writes them, and bytes that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.traces import MAIN_TID, Told, stack, write_trace

from profd.daemon.stacks.chrometrace import TraceDamaged, decode

A_TO_C = (stack("a"), stack("a", "b"), stack("c"))
stacks = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5).map(lambda functions: stack(*functions))


def begin(name: str, at_us: int = 0) -> str:
    return f'{{"ph": "B", "tid": 7, "ts": {at_us}, "name": "{name}", "args": {{"filename": "t.py", "line": 1}}}}'


@given(st.lists(stacks, min_size=1, max_size=20))
def test_every_change_comes_back(told: list[tuple[object, ...]]) -> None:
    changes = [(10 * place, frames) for place, frames in enumerate(told) if place == 0 or frames != told[place - 1]]
    end_us = 10 * len(told)
    (trace,) = decode(write_trace(Told(changes, end_us)))  # type: ignore[arg-type]
    assert [(change.at_us, change.frames) for change in trace.changes] == [*changes, (end_us, ())]
    assert (trace.os_tid, trace.name) == (MAIN_TID, "MainThread")


def test_threads_are_told_apart_by_what_the_interpreter_calls_them() -> None:
    main = Told([(0, A_TO_C[0]), (20, A_TO_C[1])], 30)
    other = Told([(5, A_TO_C[2])], 25, "thread (4250): Thread-1: (pin)", 0x7F11)
    first, second = decode(write_trace(main, other))
    assert [change.at_us for change in first.changes] == [0, 20, 30]
    assert (second.ident, second.os_tid, second.name) == (0x7F11, 4250, "Thread-1: (pin)")
    assert [change.at_us for change in second.changes] == [5, 25]


@pytest.mark.parametrize(
    ("label", "os_tid", "name"),
    [
        ("thread (0x7F71075C16C0): wkr", None, "wkr"),
        ("thread (12)", 12, ""),
        ("thread (12): two\\nlines", 12, "two\nlines"),
    ],
)
def test_thread_is_named_as_far_as_the_interpreter_tells(label: str, os_tid: int | None, name: str) -> None:
    (trace,) = decode(write_trace(Told([(0, A_TO_C[0])], 5, label.replace("\\n", "\n"))))
    assert (trace.os_tid, trace.name) == (os_tid, name)


def test_a_thread_has_the_name_that_it_gets_later() -> None:
    before = Told([(0, A_TO_C[0])], 20, "thread (12)")
    after = Told([(20, A_TO_C[1])], 30, "thread (12): feeder")
    (trace,) = decode(write_trace(before, after))
    assert (trace.os_tid, trace.name) == (12, "feeder")
    assert [change.at_us for change in trace.changes] == [0, 20, 30]


def test_equal_frames_are_one_object() -> None:
    (trace,) = decode(write_trace(Told([(0, stack("a", "b")), (5, stack()), (9, stack("a", "b"))], 20)))
    assert trace.changes[0].frames[2] is trace.changes[2].frames[2]


def test_a_line_that_is_not_known_is_zero() -> None:
    data = write_trace(Told([(0, stack("a"))], 5)).replace(b'"line":10', b'"line":null')
    (trace,) = decode(data)
    assert [frame.line for frame in trace.changes[0].frames] == [96, 0]


def test_events_that_are_no_stacks_are_passed_over() -> None:
    data = write_trace(Told([(0, stack("a"))], 5))
    assert decode(b'[{"ph": "M", "tid": 1, "ts": 0},' + data[1:]) == decode(data)


@pytest.mark.parametrize("data", [b"[]", f"[{begin('thread (1)')}]".encode()])
def test_a_trace_without_any_time_has_no_threads(data: bytes) -> None:
    assert decode(data) == []


def test_whatever_a_thread_is_called_fits_into_a_run_file() -> None:
    (trace,) = decode(write_trace(Told([(0, A_TO_C[0])], 5, "thread (0x1)", (1 << 64) - 1)))
    assert 0 <= trace.ident < 1 << 63


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
    with pytest.raises(TraceDamaged):
        decode(data)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_bytes_that_went_wrong_never_do_worse(noise: bytes, place: int) -> None:
    data = write_trace(Told([(0, A_TO_C[0]), (20, A_TO_C[1])], 30))
    try:
        decode(data[:place] + noise + data[place + len(noise) :])
    except TraceDamaged:
        return
