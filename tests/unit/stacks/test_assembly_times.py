"""When stacks were read: changes are noted later than that."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.traces import stack

from profd.daemon.stacks import assembly, pyspy
from profd.daemon.stacks.pyspy import StackChange
from profd.daemon.store.records import Stack

DEEP, FLAT = stack(*"abcdefghijklmnopqrstuvwxyz" * 4), stack("a")
PER_FRAME_US = 15


def read_us(frames: Stack) -> int:
    return PER_FRAME_US * (assembly.FRAMES_AROUND + len(frames))


def trace(*changes: tuple[int, Stack]) -> pyspy.ThreadTrace:
    return pyspy.ThreadTrace(
        1, 1, "MainThread", tuple(StackChange(at_us, frames) for at_us, frames in changes)
    )


def share_of_deep(one: pyspy.ThreadTrace) -> float:
    spent = {True: 0, False: 0}
    for now, after in itertools.pairwise(one.changes):
        spent[now.frames == DEEP] += after.at_us - now.at_us
    return spent[True] / sum(spent.values())


def simulated(seconds: int, seed: int) -> tuple[pyspy.ThreadTrace, int, int]:
    """Return what py-spy notes of a program that is deep for half of its time, with samples and CPU
    time in ns.
    """
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
    cpu_us = assembly.START_US + 100 * PER_FRAME_US * (
        assembly.FRAMES_AROUND + len(FLAT) + len(DEEP)
    )
    found = assembly.as_read([main, beside], 200, round(cpu_us * 1000))
    whole_us = PER_FRAME_US * (assembly.FRAMES_AROUND + len(FLAT) + len(DEEP))
    assert [one.changes[0].at_us for one in found] == [-whole_us, -whole_us]
    (read,) = assembly.as_read([trace((0, FLAT), (400_000, ()))], 8, 900_000_000)
    assert read.changes[0].at_us == -round(
        assembly.USUAL_US_PER_FRAME * (assembly.FRAMES_AROUND + len(FLAT))
    )


def test_a_change_moves_by_the_time_of_its_read() -> None:
    noted = trace((100_000, FLAT), (600_000, DEEP), (1_100_000, ()))
    frames = (len(FLAT) + len(DEEP)) / 2
    cpu_us = assembly.START_US + 100 * PER_FRAME_US * (assembly.FRAMES_AROUND + frames)
    (read,) = assembly.as_read([noted], 100, round(cpu_us * 1000))
    assert [change.at_us for change in read.changes] == [
        100_000 - read_us(FLAT),
        600_000 - read_us(DEEP),
        1_100_000,
    ]


@pytest.mark.parametrize(("samples", "cpu_ns"), [(0, 10**9), (100, 0)])
def test_where_nothing_is_known_times_stay_as_they_were_noted(samples: int, cpu_ns: int) -> None:
    noted = trace((0, FLAT), (500, DEEP), (1000, ()))
    assert assembly.as_read([noted], samples, cpu_ns) == [noted]
    assert assembly.as_read([], 10, 10) == []


@given(
    st.lists(st.tuples(st.integers(1, 30_000), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 500),
)
def test_changes_stay_in_order(stays: list[tuple[int, bool]], samples: int) -> None:
    starts = list(itertools.accumulate(length for length, _ in stays))
    changes = [
        (at_us, DEEP if is_deep else FLAT)
        for at_us, (_, is_deep) in zip(starts, stays, strict=True)
    ]
    (read,) = assembly.as_read(
        [trace(*changes, (starts[-1] + 1, ()))], samples, samples * 5_000_000
    )
    times = [change.at_us for change in read.changes]
    assert times == sorted(times)
    assert [change.frames for change in read.changes][:-1] == [frames for _, frames in changes]
