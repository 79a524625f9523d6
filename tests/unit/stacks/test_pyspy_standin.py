"""The stand-in for py-spy plays every stored recording: cut, repeated, with other IDs, with the log of failed reads."""

from __future__ import annotations

import os

import pytest
from support.pyspy import playing
from support.pyspy.playing import Played, Span, Take
from support.pyspy.standin import RECORDINGS, StandIn

from profd.daemon.stacks import assembly
from profd.daemon.stacks.dump import take_dump
from profd.daemon.stacks.pyspy import read_log

PID = 77
STARTED_US = 5_000
STORED = sorted(path.name.removesuffix(".jsonl.gz") for path in RECORDINGS.glob("*.jsonl.gz"))


def play(name: str, length_us: int, number: int = 1) -> Played:
    """Play a part of a stored recording."""
    recording = playing.load([os.fspath(RECORDINGS / f"{name}.jsonl.gz")], "record", number)
    options = {"threads": True, "subprocesses": False, "format": "chrometrace"}
    return Take(recording, PID).play(Span(STARTED_US, STARTED_US + length_us, 0.0, 100, None), options, 0)


@pytest.mark.parametrize("name", STORED)
def test_stored_recording_is_played_for_as_long_as_it_is_asked_for(name: str) -> None:
    for length_us in (300_000, 4_000_000):
        played = play(name, length_us)
        traces = assembly.decode(played.data)
        assert {trace.changes[-1].at_us for trace in traces} == {STARTED_US + length_us}
        assert all(trace.changes[0].at_us >= STARTED_US for trace in traces)
        assert PID in {trace.os_tid for trace in traces} or {trace.os_tid for trace in traces} == {None}
        assert played.samples > 0
        assert len(played.log) == played.errors
        assert len(read_log("".join(played.log).encode(), 0)) == played.errors


def test_recordings_follow_each_other_and_failed_reads_are_logged_in_proportion() -> None:
    """A deep recursion, of which some reads failed."""
    once, twice = play("recursion", 2_000_000), play("recursion", 6_000_000)
    assert 0 < once.errors < twice.errors
    assert play("flat", 300_000, 1).data != play("flat", 300_000, 2).data


def test_dump_of_a_stored_recording_is_of_the_process_that_is_asked_for(py_spy: StandIn) -> None:
    py_spy.plays_recording("flat")
    assert os.getpid() in {thread.os_thread_id for thread in take_dump(os.getpid())}
