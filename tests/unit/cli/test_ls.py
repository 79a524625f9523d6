"""`profd ls`: every run file has its line, whatever state it is in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.commandline import CommandLine
from support.synthetic import MAIN, RUN_ID, STARTED_NS, this_process, write_run

from profd.cli import ls
from profd.daemon import paths, processes
from profd.daemon.errors import ExitCode, OutputUnwritable
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread
from profd.daemon.store import records
from profd.daemon.tree.attachable import Attachable
from profd.daemon.tree.tree import DumpedProcess

TRAINING = Attachable(
    pid=4242, python="3.11", uses_torch=True, age_s=61.0, command=("python", "train.py")
)


@pytest.fixture(autouse=True)
def one_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ls, "find_attachable", lambda: [TRAINING])


def listed(profd: CommandLine) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(profd("ls", "--json"))["runs"]
    return runs


def test_runs_are_listed_with_what_is_known_the_newest_first(
    runs: Path, profd: CommandLine
) -> None:
    assert "profd run" in profd("ls")  # there are none yet
    path = write_run(runs / f"{RUN_ID}.profd", seconds=4)
    (run,) = listed(profd)
    assert (run["run"], run["file"], run["state"], run["duration_s"]) == (
        RUN_ID,
        str(path),
        "ended",
        4.0,
    )
    assert run["command"] == ["python", "train.py", "--epochs", "2"]
    assert (
        run["samples"] == 4 * 100 * 4
    )  # of two threads of the main process and one of each worker
    path.unlink()
    for day in ("19", "21", "20"):
        write_run(runs / f"202611{day}-120000-cifar-0000.profd", seconds=1)
    assert [Path(run["file"]).name[6:8] for run in listed(profd)] == ["21", "20", "19"]


def test_unreadable_file_is_listed_as_such_and_a_live_run_marks_its_processes(
    runs: Path, profd: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    its_child = msgspec.structs.replace(TRAINING, pid=os.getpid())
    monkeypatch.setattr(ls, "find_attachable", lambda: [TRAINING, its_child])
    path = write_run(runs / f"{RUN_ID}.profd", seconds=1)
    path.write_bytes(path.read_bytes()[:5000])
    (runs / "20261121-000000-notes-0000.profd").write_text("not a run")
    assert [run["state"] for run in listed(profd)] == ["unreadable", "unreadable"]
    assert "is cut short" in profd("ls")
    path.unlink()
    write_run(path, seconds=1, live=True, also=[this_process()])
    (paths.runtime_folder() / f"{RUN_ID}.sock").touch()
    text = profd("ls")
    assert "is no run file" in text
    lines = {
        line.split()[0]: line.split()[1:] for line in text.splitlines() if line.endswith("train.py")
    }
    assert lines["4242"] == ["3.11", "torch", "1", "min", "01", "s", "python", "train.py"]
    assert lines[str(os.getpid())] == [
        "3.11",
        "torch",
        "1",
        "min",
        "01",
        "s",
        RUN_ID,
        "python",
        "train.py",
    ]


def test_runs_are_listed_where_nothing_can_be_written(
    runs: Path, profd: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Path:
        raise OutputUnwritable("cannot create the folder", "set PROFD_HOME")

    write_run(runs / f"{RUN_ID}.profd", seconds=1)
    monkeypatch.setattr(paths, "runtime_folder", refuse)
    text = profd("ls")
    assert RUN_ID in text
    assert "4242" in text


FRAMES = (
    DumpedFrame("forward", "/home/ada/cifar/model.py", 12),
    DumpedFrame("main", "train.py", 90),
)
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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give the list of PIDs whose trees are dumped; the target of a run is running."""
    asked: list[int] = []

    def dump_tree(pid: int) -> list[DumpedProcess]:
        asked.append(pid)
        return DUMPED

    monkeypatch.setattr(ls, "dump_tree", dump_tree)
    monkeypatch.setattr(
        processes, "is_running", lambda pid, start_ticks: (pid, start_ticks) == MAIN
    )
    return asked


def test_processes_come_first_then_their_stacks_and_json_has_every_thread(
    asked: list[int], profd: CommandLine
) -> None:
    assert profd("dump", 4711) == TEXT
    assert asked == [4711]
    first, second = json.loads(profd("dump", 4711, "--json"))
    assert first["threads"][0]["frames"][0] == {
        "name": "forward",
        "filename": "/home/ada/cifar/model.py",
        "line": 12,
    }
    assert (second["pid"], second["error"]) == (9, "it moved")


def test_a_dump_without_a_stack_has_a_code_of_its_own(
    asked: list[int], profd: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ls, "dump_tree", lambda _: DUMPED[1:])
    for more in ((), ("--json",)):
        profd("dump", 4711, *more, code=ExitCode.NO_SAMPLES)
        assert "it moved" in profd.out


def test_of_a_run_its_target_is_dumped_unless_that_has_ended(
    asked: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profd: CommandLine
) -> None:
    run = write_run(tmp_path / "a.profd", seconds=1)
    assert profd("dump", run) == TEXT
    monkeypatch.setattr(
        processes, "is_running", lambda pid, start_ticks: False
    )  # another process has its PID now
    assert f"profd summary {RUN_ID}" in profd("dump", run, code=ExitCode.NO_PROCESS)
    assert asked == [MAIN.pid]


@pytest.mark.usefixtures("asked")
def test_the_hang_that_a_run_is_in_comes_first_without_steering_the_terminal(
    tmp_path: Path, profd: CommandLine
) -> None:
    report = records.HangReport("rank", ())
    hangs: list[records.Record] = [
        records.HangFound(STARTED_NS + 1, STARTED_NS, "this one has ended", report),
        records.HangEnded(STARTED_NS + 2, STARTED_NS + 1),
        records.HangFound(STARTED_NS + 3, STARTED_NS, "all wait\x1b]0;mine\x07 for rank 1", report),
    ]
    out = profd("dump", write_run(tmp_path / "a.profd", seconds=1, also=hangs))
    assert out.startswith("▲ all wait")
    assert out.endswith(TEXT)
    assert "this one has ended" not in out
    assert "\x1b" not in out
