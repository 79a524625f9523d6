"""When RAS is asked for a run, and what is learned of ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.clocks import StoppedClock
from support.folders import TESTS
from support.present import there
from support.ras import RasServer, job_of

from profd.daemon import processes
from profd.daemon.collectives.client import Address, NoAnswer
from profd.daemon.collectives.ras import Ras
from profd.daemon.hangs.job import JobInquiry, ask_for_dumps, read_dumps
from profd.daemon.hangs.look import Look, StackState
from profd.daemon.hangs.waits import Wait
from profd.daemon.store.records import EventHappened, Identity, Placement, Record
from profd.daemon.tree.tree import Member


def member(pid: int, rank: int | None = None) -> Member:
    placement = None if rank is None else Placement(rank, rank, 0, 2, "job")
    return Member(
        Identity(pid, 1), None, ("python", "train.py"), "main", rank, None, "3.11.7", 1, placement
    )


def test_ranks_come_from_ras() -> None:
    put: list[Record] = []
    learned: list[dict[int, int]] = []
    with RasServer([job_of(2)]) as server:
        ras = Ras(Address("127.0.0.1", server.port), {1000: 1000, 1001: 1001})
        inquiry = JobInquiry(StoppedClock(), put.append, learned.append, lambda *_: ras)
        for _ in range(2):
            assert inquiry.ask([member(1000), member(1001, rank=5)]) is not None
    assert learned[0] == {1000: 0, 1001: 1}
    assert put == []


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


def waiting(pid: int, rank: int | None = 0, kind: str = "lock") -> StackState:
    return StackState(member(pid, rank), "MainThread", True, (), Wait(kind, "a lock"))


def pipe_at(path: Path) -> int:
    """Make the pipe, and open it as torch's DumpPipe does."""
    os.mkfifo(path, 0o666)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    given = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/fr_"}
    monkeypatch.setattr(
        processes, "environment", lambda pid, allowed: {k: given[k] for k in given if k in allowed}
    )
    return tmp_path


def test_an_armed_flight_recorder_is_asked_through_its_own_pipe(armed: Path) -> None:
    pipes = [pipe_at(armed / f"fr_{rank}.pipe") for rank in (0, 1)]
    rows = tuple(waiting(os.getpid(), rank) for rank in (0, 1))
    try:
        assert ask_for_dumps(Look(0, rows))
        assert [os.read(pipe, 128) for pipe in pipes] == [b"1", b"1"]
    finally:
        for pipe in pipes:
            os.close(pipe)


def test_who_waits_for_the_lock_of_python_or_has_no_rank_is_not_asked(armed: Path) -> None:
    pipe = pipe_at(armed / "fr_0.pipe")
    try:
        for row in (waiting(os.getpid(), kind="gil"), waiting(os.getpid(), None)):
            assert not ask_for_dumps(Look(0, (row,)))
        writer = os.open(armed / "fr_0.pipe", os.O_WRONLY | os.O_NONBLOCK)
        os.write(writer, bytes(1 << 20))  # as much as it takes
        assert not ask_for_dumps(Look(0, (waiting(os.getpid()),)))  # full: it does not wait
        os.close(writer)
    finally:
        os.close(pipe)


def test_a_pipe_that_nobody_reads_and_a_file_of_its_name_are_left_alone(armed: Path) -> None:
    os.mkfifo(armed / "fr_0.pipe")
    assert not ask_for_dumps(Look(0, (waiting(os.getpid()),)))
    (armed / "fr_1.pipe").write_bytes(b"")
    with (armed / "fr_1.pipe").open("rb"):
        assert not ask_for_dumps(Look(0, (waiting(os.getpid(), 1),)))
    assert (armed / "fr_1.pipe").read_bytes() == b""


def test_a_pipe_of_another_user_is_left_alone(armed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = pipe_at(armed / "fr_0.pipe")
    monkeypatch.setattr(processes, "owner_uid", lambda pid: os.getuid() + 1)
    try:
        assert not ask_for_dumps(Look(0, (waiting(os.getpid()),)))
    finally:
        os.close(pipe)


STAND_IN = """
import os, select, shutil, sys
stem, dump = sys.argv[1:]
os.mkfifo(stem + "3.pipe", 0o666)
pipe = os.open(stem + "3.pipe", os.O_RDONLY | os.O_NONBLOCK)
print("ready", flush=True)
select.select([pipe], [], [])
assert os.read(pipe, 128)
shutil.copy(dump, stem + "3")
print("dumped", flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_asked_dumps_and_its_dump_is_read(tmp_path: Path) -> None:
    """The stand-in does what DumpPipe and HeartbeatMonitor of ProcessGroupNCCL do (torch 2.14)."""
    stem, dump = f"{tmp_path}/fr_", str(TESTS / "data" / "flight_recorder.pickle")
    given = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": stem, "TORCH_FR_DUMP_TEMP_FILE": stem}
    with subprocess.Popen(
        [sys.executable, "-c", STAND_IN, stem, dump],
        env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        said = there(child.stdout)
        assert said.readline() == b"ready\n"
        assert ask_for_dumps(Look(0, (waiting(child.pid, 3),)))
        assert said.readline() == b"dumped\n"
        found = read_dumps([member(child.pid, 3)], 0)
        child.communicate(b"")
    assert found[3].startswith("flight recorder of rank 3: all_reduce 3 of default_pg")
