"""Of whom a window is taken: roles, and who has asked for work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from clocks import StoppedClock
from kinetoclient import KinetoClient, inquiry

from profd.daemon.errors import SessionFailed
from profd.daemon.store.records import Identity, Record
from profd.daemon.supervise.tree import Member
from profd.daemon.supervise.windowing import Windowing
from profd.daemon.windows.request import WindowRequest


def member(pid: int, role: str, python: str | None = "3.11.7") -> Member:
    return Member(
        identity=Identity(pid, 1), parent=None, command=("python",), role=role, rank=None, ordinal=None, python=python,
        image=0,
    )  # fmt: skip


RANKS = [member(11, "main"), member(12, "main")]
OTHERS = [member(10, "launcher"), member(13, "worker"), member(14, "helper"), member(15, "main", python=None)]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("w")


@pytest.fixture
async def windowing(folder: Path) -> AsyncIterator[Windowing]:
    records: list[Record] = []
    windowing = Windowing(folder, StoppedClock(), records.append)
    windowing.start()
    yield windowing
    await windowing.close()


async def test_every_training_process_is_asked_and_no_other(windowing: Windowing) -> None:
    begun = windowing.begin([*OTHERS, *RANKS], WindowRequest())
    assert begun.pids == (11, 12)
    assert begun.asked_ns == StoppedClock().at_ns


async def test_those_who_have_asked_go_before_those_who_have_not(windowing: Windowing, folder: Path) -> None:
    with KinetoClient(folder) as client:
        for pid in (12, 13):
            client.send(inquiry(pid))
            await client.answer()
    assert windowing.begin([*OTHERS, *RANKS], WindowRequest()).pids == (12,)


async def test_run_in_which_nobody_trains_takes_none(windowing: Windowing) -> None:
    with pytest.raises(SessionFailed, match="no process of this run trains"):
        windowing.begin(OTHERS, WindowRequest())


async def test_run_that_was_not_armed_takes_none_and_says_how() -> None:
    records: list[Record] = []
    unarmed = Windowing(None, StoppedClock(), records.append)
    unarmed.start()
    with pytest.raises(SessionFailed, match="launch it with `profd run --torch-window"):
        unarmed.begin(RANKS, WindowRequest())
    await unarmed.close()
