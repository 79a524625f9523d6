"""Chains whose recordings fail, hang, or are broken off: nothing is left behind, and it is said."""

from __future__ import annotations

import asyncio

import pytest
from support.fakerecordings import LONG_S, FakeRecording, Stage, fail, hang, sample, stage, this_process
from support.waiting import DEADLINE_S

from profd.daemon.stacks import chain as chain_module
from profd.daemon.stacks.chain import REPORT_AFTER_FAILURES, StackChain
from profd.daemon.stacks.pyspy import RecordingFailed
from profd.daemon.store.records import Record

__all__ = ["stage"]  # a fixture: pytest finds it by its name here


async def test_what_fails_at_first_is_tried_again(stage: Stage) -> None:
    stage.studio.directions = [fail, fail, sample]
    chain = stage.begin()
    await stage.studio.until_made(3)
    chain.stop()
    await stage.end()
    assert len(stage.taken) == 1
    assert stage.said == []


async def test_what_fails_for_long_is_said_once(stage: Stage) -> None:
    stage.studio.directions = [fail]
    chain = stage.begin()
    await stage.studio.until_made(REPORT_AFTER_FAILURES + 3)
    chain.stop()
    await stage.end()
    assert stage.said == [("error", "its stacks cannot be read: Failed to find python version")]
    assert all(made.collected for made in stage.studio.made)


async def test_what_works_again_and_fails_again_is_said_again(stage: Stage) -> None:
    round_of_failures = [fail] * REPORT_AFTER_FAILURES
    stage.studio.directions = [*round_of_failures, sample, *round_of_failures, sample]
    chain = stage.begin()
    works = await stage.studio.until_made(REPORT_AFTER_FAILURES + 1)
    works.stop()
    await stage.studio.until_made(2 * REPORT_AFTER_FAILURES + 2)
    chain.stop()
    await stage.end()
    assert [kind for kind, _ in stage.said] == ["error", "error"]


async def test_a_py_spy_that_cannot_be_started_is_a_failure_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> FakeRecording:
        raise RecordingFailed("py-spy cannot be started (No such file or directory)")

    monkeypatch.setattr(chain_module, "Recording", refuse)
    chain = stage.begin()
    while not stage.said:
        await asyncio.sleep(0)
    chain.stop()
    await stage.end()
    assert stage.said[0][1].endswith("py-spy cannot be started (No such file or directory)")


async def test_one_that_never_samples_is_abandoned(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "START_TIMEOUT_S", 0.01)
    stage.studio.directions = [hang, sample]
    chain = stage.begin()
    await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
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
    chain.stop()
    await stage.end()


@pytest.mark.parametrize("data", [b"", b"garbage", b"[]]"])
async def test_a_damaged_recording_is_a_loss_and_the_chain_goes_on(stage: Stage, data: bytes) -> None:
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    first.data = data
    chain.hurry()
    await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
    assert [kind for kind, _ in stage.said] == ["loss"]
    assert len(stage.taken) == 1


async def test_failed_reads_that_are_logged_in_unknown_words_are_said_once(stage: Stage) -> None:
    chain = stage.begin()
    for number in (1, 2, 3):
        made = await stage.studio.until_made(number)
        made.errors = 7
        chain.hurry()
    await stage.studio.until_made(4)
    chain.stop()
    await stage.end()
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
    chain.stop()
    await stage.end()
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

    chain = StackChain("py-spy", this_process(), stage.pace, None, stage.clock, refuse)
    task = asyncio.ensure_future(chain.run())
    await stage.studio.until_made(1)
    chain.hurry()
    await asyncio.wait({task}, timeout=DEADLINE_S)
    assert isinstance(task.exception(), RuntimeError)
    assert [made.collected or made.abandoned for made in stage.studio.made] == [True, True]
