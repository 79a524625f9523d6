"""`profd export` and `profd summary` on a run with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import RUN_ID, worker, write_run

from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode

Captured = pytest.CaptureFixture[str]

SECONDS, RATE_HZ = 4, 100


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(write_run(tmp_path / f"{RUN_ID}.profd", seconds=SECONDS))


def samples(text: str) -> int:
    return sum(int(line.rpartition(" ")[2]) for line in text.splitlines())


@pytest.mark.parametrize(
    ("options", "threads"),
    [
        ([], 1),
        (["--threads"], 4),
        (["--processes"], 4),
        (["--process", str(worker(1).pid)], 1),
        (["--from", "2"], 0.5),
        (["-o", "-"], 1),
        (["-o", "stacks.txt"], 1),
    ],
)
def test_stacks_go_to_stdout_or_to_a_file_alone(
    run: str,
    options: list[str],
    threads: float,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["export", run, "--format", "collapsed", *options]) == 0
    told, file = capsys.readouterr().out, tmp_path / "stacks.txt"
    assert (told == "") == file.exists()
    assert samples(told or file.read_text()) == threads * SECONDS * RATE_HZ


def test_file_that_cannot_be_written_leaves_nothing_behind(run: str, tmp_path: Path, capsys: Captured) -> None:
    before = sorted(tmp_path.iterdir())
    words = ["export", run, "--format", "collapsed", "-o", str(tmp_path / "no" / "file")]
    assert run_command_line(words) == ExitCode.UNWRITABLE_OUTPUT
    assert "-o FILE" in capsys.readouterr().err
    assert run_command_line([*words[:-1], str(tmp_path)]) == ExitCode.UNWRITABLE_OUTPUT
    assert run_command_line(["export", run, "--format", "gprof"]) == ExitCode.USAGE
    assert sorted(tmp_path.iterdir()) == before
