"""Chains of made-up recordings of this process: when each begins and ends."""

from __future__ import annotations

import asyncio
import os

import pytest
from support.fakerecordings import LONG_S, FakeRecording, Stage, fail, hang, kill, sample, stage
from support.synthetic import identity_of
from support.waiting import DEADLINE_S

from profd.daemon import processes
from profd.daemon.stacks import assembly
from profd.daemon.stacks import chain as chain_module
from profd.daemon.stacks.assembly import Span, Threads
from profd.daemon.stacks.chain import REPORT_AFTER_FAILURES, StackChain
from profd.daemon.stacks.misreads import Evidence
from profd.daemon.stacks.pyspy import RawRecording, RecordingFailed
from profd.daemon.store.records import Identity, Record, RecordingTaken

__all__ = ["stage"]  # a fixture: pytest finds it by its name here


async def test_recordings_follow_each_other_without_gap_or_overlap(stage: Stage) -> None:
    chain = stage.begin()
    for count in (1, 2, 3, 4):
        await stage.studio.until_made(count)
        chain.hurry()
    await stage.studio.until_made(5)
    await stage.end(chain)
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
    await stage.end(chain)


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
    await stage.end(chain)
    assert 3 / 50 in waited


async def test_a_recording_lasts_as_long_as_the_pace_says(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", 0.001)
    stage.pace.seconds = 0.002
    chain = stage.begin()
    await stage.studio.until_made(3)
    await stage.end(chain)
    assert [made.length_s for made in stage.studio.made[:3]] == [0.001, 0.002, 0.002]


async def test_the_rate_counts_from_the_next_recording_on(stage: Stage) -> None:
    chain = stage.begin()
    await stage.studio.until_made(1)
    stage.pace.hz = 700
    chain.hurry()
    await stage.studio.until_made(2)
    await stage.end(chain)
    assert [record.rate_hz for record in stage.taken] == [1_000_000, 700]


async def test_stop_waits_for_no_one_who_has_not_begun(stage: Stage) -> None:
    stage.studio.directions = [sample, hang]
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    second = await stage.studio.until_made(2)
    await stage.end(chain)
    assert second.abandoned
    assert len(stage.taken) == 1


async def test_a_chain_stopped_before_it_began_does_nothing(stage: Stage) -> None:
    chain = stage.begin()
    await stage.end(chain)
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
    await stage.end(chain)
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


async def test_what_fails_at_first_is_tried_again(stage: Stage) -> None:
    stage.studio.directions = [fail, fail, sample]
    chain = stage.begin()
    await stage.studio.until_made(3)
    await stage.end(chain)
    assert len(stage.taken) == 1
    assert stage.said == []


async def test_what_fails_for_long_is_said_once(stage: Stage) -> None:
    stage.studio.directions = [fail]
    chain = stage.begin()
    await stage.studio.until_made(REPORT_AFTER_FAILURES + 3)
    await stage.end(chain)
    assert stage.said == [("error", "its stacks cannot be read: Failed to find python version")]
    assert all(made.collected for made in stage.studio.made)


async def test_what_works_again_and_fails_again_is_said_again(stage: Stage) -> None:
    round_of_failures = [fail] * REPORT_AFTER_FAILURES
    stage.studio.directions = [*round_of_failures, sample, *round_of_failures, sample]
    chain = stage.begin()
    works = await stage.studio.until_made(REPORT_AFTER_FAILURES + 1)
    works.stop()
    await stage.studio.until_made(2 * REPORT_AFTER_FAILURES + 2)
    await stage.end(chain)
    assert [kind for kind, _ in stage.said] == ["error", "error"]


async def test_a_py_spy_that_cannot_be_started_is_a_failure_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> FakeRecording:
        raise RecordingFailed("py-spy cannot be started (No such file or directory)")

    monkeypatch.setattr(chain_module, "Recording", refuse)
    chain = stage.begin()
    while not stage.said:
        await asyncio.sleep(0)
    await stage.end(chain)
    assert stage.said[0][1].endswith("py-spy cannot be started (No such file or directory)")


async def test_one_that_never_samples_is_abandoned(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "START_TIMEOUT_S", 0.01)
    stage.studio.directions = [hang, sample]
    chain = stage.begin()
    await stage.studio.until_made(2)
    await stage.end(chain)
    assert stage.studio.made[0].abandoned
    assert len(stage.taken) == 1


async def test_a_hurry_does_not_make_failing_quicker(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "RETRY_FIRST_S", LONG_S)
    monkeypatch.setattr(chain_module, "RETRY_LAST_S", LONG_S)
    stage.studio.directions = [fail]
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    await stage.studio.until_made(2)
    assert len(stage.studio.made) == 2
    await stage.end(chain)


@pytest.mark.parametrize("data", [b"", b"garbage", b"[]]"])
async def test_a_damaged_recording_is_a_loss_and_the_chain_goes_on(stage: Stage, data: bytes) -> None:
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    first.data = data
    chain.hurry()
    await stage.studio.until_made(2)
    await stage.end(chain)
    assert [kind for kind, _ in stage.said] == ["loss"]
    assert len(stage.taken) == 1


async def test_failed_reads_that_are_logged_in_unknown_words_are_said_once(stage: Stage) -> None:
    chain = stage.begin()
    for number in (1, 2, 3):
        made = await stage.studio.until_made(number)
        made.errors = 7
        chain.hurry()
    await stage.studio.until_made(4)
    await stage.end(chain)
    ((kind, text),) = stage.said
    assert kind == "loss"
    assert text.startswith("py-spy failed to read 7 stacks, and profd cannot read from its log when")
    assert len(stage.taken) == 4


async def test_a_lost_recording_is_said(stage: Stage) -> None:
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    first.failure = "py-spy did not answer and was killed"
    chain.hurry()
    await stage.studio.until_made(2)
    await stage.end(chain)
    assert stage.said == [("loss", "a recording was lost: py-spy did not answer and was killed")]


async def test_a_chain_that_is_cancelled_abandons_what_is_in_flight(stage: Stage) -> None:
    stage.studio.directions = [sample, hang]
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    await stage.studio.until_made(2)
    stage.tasks[0].cancel()
    await asyncio.wait(stage.tasks)
    assert [made.abandoned for made in stage.studio.made] == [True, True]


async def test_a_record_that_cannot_be_taken_breaks_the_chain_and_leaves_nothing(stage: Stage) -> None:
    def refuse(record: Record) -> None:
        raise RuntimeError("no")

    chain = StackChain("py-spy", identity_of(), stage.pace, None, stage.clock, refuse)
    task = asyncio.ensure_future(chain.run())
    await stage.studio.until_made(1)
    chain.hurry()
    await asyncio.wait({task}, timeout=DEADLINE_S)
    assert isinstance(task.exception(), RuntimeError)
    assert [made.collected or made.abandoned for made in stage.studio.made] == [True, True]


async def test_in_turns_one_is_recorded_at_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", 0.001)
    stage.pace.seconds = 0.001
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn) for _ in range(3)]
    for count in range(1, 8):
        await stage.studio.until_made(count)
        assert len(stage.studio.in_flight()) <= 1
    await stage.end(*chains)
    assert len(stage.taken) >= 7


async def test_in_turns_stopping_starts_nothing_more(stage: Stage) -> None:
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn) for _ in range(16)]
    await stage.studio.until_made(1)
    await stage.end(*chains)
    assert len(stage.studio.made) == len(stage.taken) == 1


async def test_in_turns_who_is_gone_leaves_the_turn_to_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = asyncio.Semaphore(1)
    stage.begin(turn)
    stage.begin(turn)
    first = await stage.studio.until_made(1)
    kill(monkeypatch)
    first.stop()
    stage.pace.seconds = 0.0
    first.length_s = 0.0
    await stage.end()
    assert len(stage.studio.made) == 1


async def test_in_turns_a_hurry_serves_the_one_in_flight(stage: Stage) -> None:
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn), stage.begin(turn)]
    first = await stage.studio.until_made(1)
    first.length_s = 0.0
    for chain in chains:
        chain.hurry()
    second = await stage.studio.until_made(2)
    assert first.collected
    assert not second.ended.done()
    await stage.end(*chains)


async def test_in_turns_failing_holds_no_turn(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "RETRY_LAST_S", LONG_S)
    stage.studio.directions = [fail, sample]
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn), stage.begin(turn)]
    second = await stage.studio.until_made(2)
    assert not second.ended.done()
    await stage.end(*chains)
