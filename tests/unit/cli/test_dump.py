"""`profd dump`: the stacks of a process tree as text and as JSON, and the hang that a run is in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.synthetic import MAIN, RUN_ID, STARTED_NS, write_run

from profd.cli import dump
from profd.cli.main import run_command_line
from profd.daemon import processes
from profd.daemon.errors import ExitCode
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread
from profd.daemon.store import records
from profd.daemon.tree.tree import DumpedProcess

FRAMES = (DumpedFrame("forward", "/home/ada/cifar/model.py", 12), DumpedFrame("main", "train.py", 90))
THREAD = DumpedThread(1, 1, "MainThread", active=False, owns_gil=False, frames=FRAMES)
DUMPED = [
    DumpedProcess(MAIN.pid, ("python", "train.py"), (THREAD,)),
    DumpedProcess(9, ("python", "-c", "x"), (), "it moved"),
]
TEXT = f"""pid {MAIN.pid}  python train.py
pid 9  python -c x (it moved)

pid {MAIN.pid} MainThread
    forward (cifar/model.py:12)
    main (train.py:90)
"""
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give the list of PIDs whose trees are dumped."""
    asked: list[int] = []

    def dump_tree(pid: int) -> list[DumpedProcess]:
        asked.append(pid)
        return DUMPED

    monkeypatch.setattr(dump, "dump_tree", dump_tree)
    return asked


@pytest.fixture
def is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "is_running", lambda pid, start_ticks: (pid, start_ticks) == MAIN)


def test_processes_come_first_then_their_stacks_and_json_has_every_thread(asked: list[int], capsys: Captured) -> None:
    assert run_command_line(["dump", "4711"]) == ExitCode.OK
    assert asked == [4711]
    assert capsys.readouterr().out == TEXT
    assert run_command_line(["dump", "4711", "--json"]) == ExitCode.OK
    first, second = json.loads(capsys.readouterr().out)
    assert first["threads"][0]["frames"][0] == {"name": "forward", "filename": "/home/ada/cifar/model.py", "line": 12}
    assert (second["pid"], second["error"]) == (9, "it moved")


@pytest.mark.usefixtures("is_running")
def test_of_a_run_its_target_is_dumped(asked: list[int], tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["dump", str(write_run(tmp_path / "a.profd", seconds=1))]) == ExitCode.OK
    assert asked == [MAIN.pid]
    assert capsys.readouterr().out == TEXT


def test_a_target_that_has_ended_is_no_process(
    asked: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    # Another process has its PID now.
    monkeypatch.setattr(processes, "is_running", lambda pid, start_ticks: False)
    assert run_command_line(["dump", str(write_run(tmp_path / "a.profd", seconds=1))]) == ExitCode.NO_PROCESS
    assert asked == []
    assert f"profd summary {RUN_ID}" in capsys.readouterr().err


@pytest.mark.usefixtures("is_running", "asked")
def test_the_hang_that_a_run_is_in_comes_first_without_steering_the_terminal(tmp_path: Path, capsys: Captured) -> None:
    report = records.HangReport("rank", ())
    hangs: list[records.Record] = [
        records.HangFound(STARTED_NS + 1, STARTED_NS, "this one has ended", report),
        records.HangEnded(STARTED_NS + 2, STARTED_NS + 1),
        records.HangFound(STARTED_NS + 3, STARTED_NS, "all wait\x1b]0;mine\x07 for rank 1", report),
    ]
    path = write_run(tmp_path / "a.profd", seconds=1, also=hangs)
    assert run_command_line(["dump", str(path)]) == ExitCode.OK
    out = capsys.readouterr().out
    assert out.startswith("▲ all wait")
    assert out.endswith(TEXT)
    assert "this one has ended" not in out
    assert "\x1b" not in out
