"""A session samples less once it knows a run, and more as soon as the run does something new."""

from __future__ import annotations

import asyncio
import sys

import pytest
from support.sessions import give_line, ready, session_options
from support.waiting import eventually, has_begun

from profd.daemon import clock
from profd.daemon.clock import Clock
from profd.daemon.events import EventKind
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.session import need
from profd.daemon.session import recorder as recorder_module
from profd.daemon.session.recorder import Recorder
from profd.daemon.store.reader import RunReader

PROGRAM = """
import select, sys

def known():
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        pass

def new():
    while True:
        select.select([], [], [], 0.01)

print("ready", flush=True)
known()
new()
"""


async def test_a_known_run_is_sampled_less_until_it_does_something_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses_s = set[float]()

    def until_tick_s(interval_s: float) -> float:
        pauses_s.add(interval_s)
        return clock.until_tick_s(interval_s)

    monkeypatch.setattr(need, "FIRST_S", 1.0)
    monkeypatch.setattr(recorder_module, "until_tick_s", until_tick_s)
    with ready([sys.executable, "-c", PROGRAM]) as target:
        options = session_options("test", target.pid, rate_hz=None)
        recorder = Recorder(options, Clock())
        recording = asyncio.ensure_future(recorder.run(lambda _: None))

        def said(words: str) -> bool:
            with RunReader(options.run_file) as reader:
                return any(
                    one.kind is EventKind.RATE and words in one.text for one in reader.events()
                )

        def rates() -> list[int]:
            with RunReader(options.run_file) as reader:
                return [one.rate_hz for one in reader.recordings()]

        await eventually(lambda: has_begun(options.run_file), "a run file")
        await eventually(lambda: said("as all is as before"), "less samples")
        await eventually(
            lambda: recorder_module.STEADY_READINGS_S in pauses_s, "a longer time between readings"
        )
        await eventually(lambda: RECORDING.steady_rate_hz in rates(), "a recording of few samples")
        give_line(target)
        await eventually(lambda: said("as new takes"), "more samples")
        target.kill()
        await recording
    assert rates()[0] == RECORDING.full_rate_hz
