"""`profd ls`: every run file has its line, whatever state it is in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.commandline import CommandLine
from support.synthetic import (
    RUN_ID,
    main_process,
    run_started,
    this_process,
    write_records,
    write_run,
)

from profd.cli import ls
from profd.daemon import paths
from profd.daemon.errors import OutputUnwritable
from profd.daemon.tree.attachable import Attachable

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
    for run in listed(profd):  # by the name that finds it, whatever is in the file
        assert paths.find_run(run["run"]) == Path(run["file"])


@pytest.mark.parametrize("cells", [80, 120, 200])
def test_the_list_keeps_to_the_width_and_never_cuts_an_id(
    cells: int, runs: Path, profd: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = f"20261121-120000-{'n' * 24}-3fa9"
    started = msgspec.structs.replace(run_started(), id=longest)
    write_records(runs / f"{longest}.profd", [main_process()], started)
    words = ("/opt/bin/python", f"/{'home' * 20}/train.py", *["train.py"] * 50)
    training = msgspec.structs.replace(TRAINING, command=words)
    monkeypatch.setattr(ls, "find_attachable", lambda: [training])
    monkeypatch.setattr("profd.cli.console._PIPED_CELLS", cells)
    said = profd("ls")
    assert max(map(len, said.splitlines())) <= cells
    assert longest in said
    assert "python train.py train.py" in said


def test_unreadable_file_is_listed_as_such_and_a_live_run_marks_its_processes(
    runs: Path, profd: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    its_child = msgspec.structs.replace(TRAINING, pid=os.getpid())
    monkeypatch.setattr(ls, "find_attachable", lambda: [TRAINING, its_child])
    path = write_run(runs / f"{RUN_ID}.profd", seconds=1)
    path.write_bytes(path.read_bytes()[:5000])
    (runs / "20261121-000000-notes-0000.profd").write_text("not a run")
    assert [run["state"] for run in listed(profd)] == ["unreadable", "unreadable"]
    assert "unreadable" in profd("ls")
    assert "is cut short" in profd.err
    path.unlink()
    write_run(path, seconds=1, live=True, also=[this_process()])
    (paths.runtime_folder() / f"{RUN_ID}.sock").touch()
    text = profd("ls")
    assert "is no run file" in profd.err
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
