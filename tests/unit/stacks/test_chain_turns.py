"""Chains that take turns."""

from __future__ import annotations

import asyncio

import pytest
from support.fakerecordings import LONG_S, Stage, fail, kill, sample, stage

from profd.daemon.stacks import chain as chain_module

__all__ = ["stage"]  # a fixture: pytest finds it by its name here


async def test_in_turns_one_is_recorded_at_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", 0.001)
    stage.pace.seconds = 0.001
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn) for _ in range(3)]
    for count in range(1, 8):
        await stage.studio.until_made(count)
        assert len(stage.studio.in_flight()) <= 1
    for chain in chains:
        chain.stop()
    await stage.end()
    assert len(stage.taken) >= 7


async def test_in_turns_stopping_starts_nothing_more(stage: Stage) -> None:
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn) for _ in range(16)]
    await stage.studio.until_made(1)
    for chain in chains:
        chain.stop()
    await stage.end()
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
    for chain in chains:
        chain.stop()
    await stage.end()


async def test_in_turns_failing_holds_no_turn(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "RETRY_LAST_S", LONG_S)
    stage.studio.directions = [fail, sample]
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn), stage.begin(turn)]
    second = await stage.studio.until_made(2)
    assert not second.ended.done()
    for chain in chains:
        chain.stop()
    await stage.end()
