"""Reads of a real py-spy that fail, of a program that is deep for half of its time: each is known with its time."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

from truth import read_program, running

from profd.daemon.clock import AnchoredClock
from profd.daemon.collect.stacks import chrometrace, visits
from profd.daemon.collect.stacks.assembly import Span, assemble
from profd.daemon.collect.stacks.paces import Paces
from profd.daemon.collect.stacks.pyspy import RawRecording, Recording, find_py_spy
from profd.daemon.collect.stacks.statements import Statements
from profd.daemon.collect.stacks.tearing import Evidence
from profd.daemon.store.records import Identity

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


def test_restless_code_keeps_its_time_beside_long_calls_into_c(tmp_path: Path) -> None:
    """Without what failed and torn reads tell, the share is 18 points too small, and so is that of bare py-spy."""
    program, evidence, errors = read_program("reporting"), Evidence(Statements()), []
    with running(sys.executable, program, tmp_path) as target:
        assert target is not None
        raws = [asyncio.run(record(target.pid)) for _ in range(5)]
        diary = target.finish()
    for raw in raws:
        told = assemble(raw, Identity(target.pid, 0), 100, Span(), evidence=evidence)
        (thread,) = told.threads
        spent = Counter[str | None]()
        for one in thread.intervals:
            functions = tuple(frame.function for frame in told.stacks[one.stack])
            spent[program.phase_of(functions)] += one.duration_ns
        share = spent["report"] / sum(spent[phase] for phase in program.phases)
        errors.append(share - diary.shares(told.start_ns, told.end_ns)["report"])
    # The first of them has to learn where reads are torn.
    assert abs(statistics.fmean(errors[1:])) < 0.1


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
