"""Reads of a real py-spy that fail, of a program that is deep for half of its time: each is known with its time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from profd.daemon.clock import AnchoredClock
from profd.daemon.collect.stacks import chrometrace, visits
from profd.daemon.collect.stacks.paces import Paces
from profd.daemon.collect.stacks.pyspy import RawRecording, Recording, find_py_spy

SECONDS = 3.0
RECURSION = Path(__file__).parents[2] / "benchmarks" / "known" / "recursion.py"


async def record(pid: int) -> RawRecording:
    recording = Recording(find_py_spy(), pid, 100, SECONDS, AnchoredClock())
    assert await recording.sampling
    await asyncio.wait([recording.ended], timeout=SECONDS)
    recording.stop()
    return await recording.collect()


def deep_us(trace: chrometrace.ThreadTrace) -> int:
    stays = zip(trace.changes, trace.changes[1:], strict=False)
    return sum(after.at_us - now.at_us for now, after in stays if len(now.frames) > 100)


def test_every_failed_read_has_its_time_and_its_thread() -> None:
    with subprocess.Popen([sys.executable, str(RECURSION)], stdout=subprocess.PIPE) as target:
        try:
            assert target.stdout is not None
            assert target.stdout.readline() == b"ready\n"
            raw = asyncio.run(record(target.pid))
        finally:
            target.kill()
    (trace,) = chrometrace.decode(raw.data)
    assert len(raw.failed) == raw.errors > 0
    assert {one.ident for one in raw.failed} == {trace.ident}
    at_us = [(one.at_ns - raw.zero_ns) // 1000 for one in raw.failed]
    error_us = raw.clock_error_ns // 1000
    assert all(-error_us <= one <= trace.changes[-1].at_us + error_us for one in at_us)
    assert deep_us(visits.with_visits(trace, at_us, raw.samples, Paces())) > deep_us(trace)
