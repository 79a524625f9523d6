"""Traces as py-spy writes them, and bytes that are none."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.traces import MAIN_TID, ThreadTrace, stack, write_trace

from profd.daemon.stacks import assembly
from profd.daemon.stacks.misreads import Change
from profd.daemon.store.records import Stack

A_TO_C = (stack("a"), stack("a", "b"), stack("c"))
stacks = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5).map(lambda functions: stack(*functions))


def begin(name: str, at_us: int = 0) -> str:
    return f'{{"ph": "B", "tid": 7, "ts": {at_us}, "name": "{name}", "args": {{"filename": "t.py", "line": 1}}}}'


@given(st.lists(stacks, min_size=1, max_size=20))
def test_every_change_comes_back(seen: list[tuple[object, ...]]) -> None:
    changes = [(10 * place, frames) for place, frames in enumerate(seen) if place == 0 or frames != seen[place - 1]]
    end_us = 10 * len(seen)
    (trace,) = assembly.decode(write_trace(ThreadTrace(changes, end_us)))  # type: ignore[arg-type]
    assert [(change.at_us, change.frames) for change in trace.changes] == [*changes, (end_us, ())]
    assert (trace.os_tid, trace.name) == (MAIN_TID, "MainThread")


def test_threads_differ_by_their_ident_and_have_their_latest_name() -> None:
    main = ThreadTrace([(0, A_TO_C[0]), (20, A_TO_C[1])], 30)
    other = ThreadTrace([(5, A_TO_C[2])], 25, "thread (4250): Thread-1: (pin)", 0x7F11)
    first, second = assembly.decode(write_trace(main, other))
    assert [change.at_us for change in first.changes] == [0, 20, 30]
    assert (second.ident, second.os_tid, second.name) == (0x7F11, 4250, "Thread-1: (pin)")
    assert [change.at_us for change in second.changes] == [5, 25]
    before = ThreadTrace([(0, A_TO_C[0])], 20, "thread (12)")
    after = ThreadTrace([(20, A_TO_C[1])], 30, "thread (12): feeder")
    (trace,) = assembly.decode(write_trace(before, after))
    assert (trace.os_tid, trace.name) == (12, "feeder")
    assert [change.at_us for change in trace.changes] == [0, 20, 30]
    (trace,) = assembly.decode(write_trace(ThreadTrace([(0, A_TO_C[0])], 5, "thread (0x1)", (1 << 64) - 1)))
    assert 0 <= trace.ident < 1 << 63


@pytest.mark.parametrize(
    ("label", "os_tid", "name"),
    [
        ("thread (0x7F71075C16C0): wkr", None, "wkr"),
        ("thread (12)", 12, ""),
        ("thread (12): two\\nlines", 12, "two\nlines"),
    ],
)
def test_thread_is_named_as_far_as_the_interpreter_tells(label: str, os_tid: int | None, name: str) -> None:
    (trace,) = assembly.decode(write_trace(ThreadTrace([(0, A_TO_C[0])], 5, label.replace("\\n", "\n"))))
    assert (trace.os_tid, trace.name) == (os_tid, name)


def test_equal_frames_are_one_object_and_an_unknown_line_is_zero() -> None:
    (trace,) = assembly.decode(write_trace(ThreadTrace([(0, stack("a", "b")), (5, stack()), (9, stack("a", "b"))], 20)))
    assert trace.changes[0].frames[2] is trace.changes[2].frames[2]
    data = write_trace(ThreadTrace([(0, stack("a"))], 5))
    (trace,) = assembly.decode(data.replace(b'"line":10', b'"line":null'))
    assert [frame.line for frame in trace.changes[0].frames] == [96, 0]
    assert assembly.decode(b'[{"ph": "M", "tid": 1, "ts": 0},' + data[1:]) == assembly.decode(data)


@pytest.mark.parametrize("data", [b"[]", f"[{begin('thread (1)')}]".encode()])
def test_a_trace_without_any_time_has_no_threads(data: bytes) -> None:
    assert assembly.decode(data) == []


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
    with pytest.raises(assembly.TraceDamaged):
        assembly.decode(data)


DEEP, FLAT = stack(*"abcdefghijklmnopqrstuvwxyz" * 4), stack("a")
PER_FRAME_US = 15


def read_us(frames: Stack) -> int:
    return PER_FRAME_US * (assembly.FRAMES_AROUND + len(frames))


def trace(*changes: tuple[int, Stack]) -> assembly.ThreadTrace:
    return assembly.ThreadTrace(1, 1, "MainThread", tuple(Change(at_us, frames) for at_us, frames in changes))


def share_of_deep(one: assembly.ThreadTrace) -> float:
    spent = {True: 0, False: 0}
    for now, after in itertools.pairwise(one.changes):
        spent[now.frames == DEEP] += after.at_us - now.at_us
    return spent[True] / sum(spent.values())


def simulated(seconds: int, seed: int) -> tuple[assembly.ThreadTrace, int, int]:
    """Return what py-spy notes of a program that is deep for half of its time, with samples and CPU time in ns."""
    chance = random.Random(seed)
    changes: list[tuple[int, Stack]] = []
    due_us, free_us, samples, cpu_us = 0.0, 0.0, 0, assembly.START_US
    while due_us < seconds * 1e6:
        due_us += chance.expovariate(1 / 10_000)
        begun_us = max(due_us, free_us)
        frames = DEEP if begun_us % 30_000 < 15_000 else FLAT
        free_us = begun_us + read_us(frames)
        samples, cpu_us = samples + 1, cpu_us + read_us(frames)
        if not changes or changes[-1][1] != frames:
            changes.append((round(free_us), frames))
    return trace(*changes, (round(free_us) + 10_000, ())), samples, cpu_us * 1000


def test_deep_stacks_get_their_time_back_from_other_threads_too() -> None:
    noted, samples, cpu_ns = simulated(300, 1)
    assert share_of_deep(noted) == pytest.approx(0.5 - 0.05, abs=0.02)
    (read,) = assembly.as_read([noted], samples, cpu_ns)
    assert share_of_deep(read) == pytest.approx(0.5, abs=0.01)
    main, beside = trace((0, FLAT), (1_000_000, ())), trace((0, DEEP), (1_000_000, ()))
    cpu_us = assembly.START_US + 100 * PER_FRAME_US * (assembly.FRAMES_AROUND + len(FLAT) + len(DEEP))
    found = assembly.as_read([main, beside], 200, round(cpu_us * 1000))
    whole_us = PER_FRAME_US * (assembly.FRAMES_AROUND + len(FLAT) + len(DEEP))
    assert [one.changes[0].at_us for one in found] == [-whole_us, -whole_us]
    (read,) = assembly.as_read([trace((0, FLAT), (400_000, ()))], 8, 900_000_000)
    assert read.changes[0].at_us == -round(assembly.USUAL_US_PER_FRAME * (assembly.FRAMES_AROUND + len(FLAT)))


def test_a_change_moves_by_the_time_of_its_read() -> None:
    noted = trace((100_000, FLAT), (600_000, DEEP), (1_100_000, ()))
    frames = (len(FLAT) + len(DEEP)) / 2
    cpu_us = assembly.START_US + 100 * PER_FRAME_US * (assembly.FRAMES_AROUND + frames)
    (read,) = assembly.as_read([noted], 100, round(cpu_us * 1000))
    assert [change.at_us for change in read.changes] == [100_000 - read_us(FLAT), 600_000 - read_us(DEEP), 1_100_000]


@pytest.mark.parametrize(("samples", "cpu_ns"), [(0, 10**9), (100, 0)])
def test_where_nothing_is_known_times_stay_as_they_were_noted(samples: int, cpu_ns: int) -> None:
    noted = trace((0, FLAT), (500, DEEP), (1000, ()))
    assert assembly.as_read([noted], samples, cpu_ns) == [noted]
    assert assembly.as_read([], 10, 10) == []


@given(st.lists(st.tuples(st.integers(1, 30_000), st.booleans()), min_size=1, max_size=30), st.integers(1, 500))
def test_changes_stay_in_order(stays: list[tuple[int, bool]], samples: int) -> None:
    starts = list(itertools.accumulate(length for length, _ in stays))
    changes = [(at_us, DEEP if is_deep else FLAT) for at_us, (_, is_deep) in zip(starts, stays, strict=True)]
    (read,) = assembly.as_read([trace(*changes, (starts[-1] + 1, ()))], samples, samples * 5_000_000)
    times = [change.at_us for change in read.changes]
    assert times == sorted(times)
    assert [change.frames for change in read.changes][:-1] == [frames for _, frames in changes]
