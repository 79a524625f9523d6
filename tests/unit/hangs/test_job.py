"""When RAS is asked for a run, and what is learned of ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.clocks import StoppedClock
from support.folders import TESTS
from support.ras import RasServer, job_of

from profd.daemon import processes
from profd.daemon.collectives.client import Address, NoAnswer
from profd.daemon.collectives.ras import Ras
from profd.daemon.hangs.job import JobInquiry, read_dumps
from profd.daemon.store.records import EventHappened, Identity, Placement, Record
from profd.daemon.tree.tree import Member


def member(pid: int, rank: int | None = None) -> Member:
    placement = None if rank is None else Placement(rank, rank, 0, 2, "job")
    return Member(
        Identity(pid, 1), None, ("python", "train.py"), "main", rank, None, "3.11.7", 1, placement
    )


def test_ranks_come_from_ras_and_are_compared_with_the_environment() -> None:
    put: list[Record] = []
    learned: list[dict[int, int]] = []
    with RasServer([job_of(2)]) as server:
        ras = Ras(Address("127.0.0.1", server.port), {1000: 1000, 1001: 1001})
        inquiry = JobInquiry(StoppedClock(), put.append, learned.append, lambda *_: ras)
        for _ in range(2):
            assert inquiry.ask([member(1000), member(1001, rank=5)]) is not None
    assert learned[0] == {1000: 0, 1001: 1}
    assert [record.text for record in put if isinstance(record, EventHappened)] == [
        "pid 1001 is rank 5 by its environment, and 1 by NCCL"
    ]


def test_dumps_of_ranks_that_hang_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = TESTS / "data" / "flight_recorder.pickle"
    (tmp_path / "fr_1").write_bytes(dump.read_bytes())
    (tmp_path / "fr_0").write_bytes(b"no dump")
    monkeypatch.setattr(
        processes,
        "environment",
        lambda pid, allowed: {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/fr_"},
    )
    ranks = [member(os.getpid(), 0), member(os.getppid(), 1)]
    assert read_dumps(ranks, 0) == {
        1: "flight recorder of rank 1: all_reduce 3 of default_pg is scheduled at fr2.py:12"
    }
    assert read_dumps(ranks, 1 << 62) == {}


def test_why_there_is_no_answer_is_said_once() -> None:
    put: list[Record] = []

    def find(*_: object) -> Ras:
        raise NoAnswer("NCCL_RAS_ENABLE=0 turned RAS off")

    inquiry = JobInquiry(StoppedClock(), put.append, find=find)
    assert [inquiry.ask([member(1000)]) for _ in range(2)] == [None, None]
    assert [record.text for record in put if isinstance(record, EventHappened)] == [
        "NCCL's counts are not known: NCCL_RAS_ENABLE=0 turned RAS off"
    ]
