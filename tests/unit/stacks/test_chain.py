"""Chains of made-up recordings of this process: when each begins and ends."""

from __future__ import annotations

import asyncio
import os

import pytest
from support.fakerecordings import Stage, hang, kill, sample, stage
from support.waiting import DEADLINE_S

from profd.daemon import processes
from profd.daemon.stacks import assembly
from profd.daemon.stacks import chain as chain_module
from profd.daemon.stacks.assembly import Span, Threads
from profd.daemon.stacks.chain import StackChain
from profd.daemon.stacks.misreads import Evidence
from profd.daemon.stacks.pyspy import RawRecording
from profd.daemon.store.records import Identity, RecordingTaken

__all__ = ["stage"]  # a fixture: pytest finds it by its name here


async def test_recordings_follow_each_other_without_gap_or_overlap(stage: Stage) -> None:
    chain = stage.begin()
    for count in (1, 2, 3, 4):
        await stage.studio.until_made(count)
        chain.hurry()
    await stage.studio.until_made(5)
    chain.stop()
    await stage.end()
    assert len(stage.taken) == 5
    for before, after in zip(stage.taken, stage.taken[1:], strict=False):
        assert before.end_ns == after.start_ns
    assert stage.said == []


async def test_the_one_before_ends_only_once_the_next_one_samples(stage: Stage) -> None:
    stage.studio.directions = [sample, hang]
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    chain.hurry()
    second = await stage.studio.until_made(2)
    assert not first.ended.done()
    second.sampling.set_result(True)
    await asyncio.wait_for(first.ended, DEADLINE_S)
    chain.stop()
    await stage.end()


async def test_the_next_one_overlaps_by_three_mean_distances(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    real = StackChain._wait

    async def wait(
        self: StackChain, event: asyncio.Event, timeout_s: float, future: asyncio.Future[bool] | None = None
    ) -> None:
        waited.append(timeout_s)
        await real(self, event, timeout_s, future)

    monkeypatch.setattr(StackChain, "_wait", wait)
    stage.pace.hz = 50
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.stop()
    await stage.end()
    assert 3 / 50 in waited


async def test_a_recording_lasts_as_long_as_the_pace_says(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", 0.001)
    stage.pace.seconds = 0.002
    chain = stage.begin()
    await stage.studio.until_made(3)
    chain.stop()
    await stage.end()
    assert [made.length_s for made in stage.studio.made[:3]] == [0.001, 0.002, 0.002]


async def test_the_rate_counts_from_the_next_recording_on(stage: Stage) -> None:
    chain = stage.begin()
    await stage.studio.until_made(1)
    stage.pace.hz = 700
    chain.hurry()
    await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
    assert [record.rate_hz for record in stage.taken] == [1_000_000, 700]


async def test_stop_keeps_what_is_in_flight(stage: Stage) -> None:
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.stop()
    await stage.end()
    assert len(stage.taken) == 1
    assert stage.taken[0].samples == 100


async def test_stop_waits_for_no_one_who_has_not_begun(stage: Stage) -> None:
    stage.studio.directions = [sample, hang]
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    second = await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
    assert second.abandoned
    assert len(stage.taken) == 1


async def test_a_chain_stopped_before_it_began_does_nothing(stage: Stage) -> None:
    chain = stage.begin()
    chain.stop()
    await stage.end()
    assert stage.studio.made == []


async def test_a_process_that_is_gone_ends_the_chain(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.begin()
    first = await stage.studio.until_made(1)
    kill(monkeypatch)
    first.stop()
    await stage.end()
    assert len(stage.studio.made) == len(stage.taken) == 1


async def test_a_process_that_is_gone_when_a_recording_is_due_gets_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = stage.begin()
    await stage.studio.until_made(1)
    kill(monkeypatch)
    chain.hurry()
    await stage.end()
    assert len(stage.studio.made) == len(stage.taken) == 1


async def test_after_exec_recording_begins_anew_with_a_gap(stage: Stage) -> None:
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    first.stop()  # what py-spy does when the interpreter goes from under it
    await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
    assert len(stage.taken) == 2
    assert stage.taken[0].end_ns < stage.taken[1].start_ns


async def test_threads_are_looked_at_while_the_process_is_there(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Threads] = []
    real = assembly.assemble

    def assemble(
        raw: RawRecording, identity: Identity, rate_hz: int, keep: Span, threads: Threads, evidence: Evidence
    ) -> RecordingTaken:
        seen.append(threads)
        return real(raw, identity, rate_hz, keep, threads, evidence)

    monkeypatch.setattr(assembly, "assemble", assemble)
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    second = await stage.studio.until_made(2)
    kill(monkeypatch)
    second.stop()
    await stage.end()
    assert [threads.is_current for threads in seen] == [True, False]
    assert seen[0].ids == seen[1].ids == processes.thread_ids(os.getpid())
