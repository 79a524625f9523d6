"""`profd export` and `profd summary` on a run with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commandline import CommandLine
from support.synthetic import RUN_ID, main_process, worker, write_records, write_run

from profd.daemon.errors import ExitCode
from profd.daemon.exports.formats import FORMATS

SECONDS, RATE_HZ = 4, 100


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(write_run(tmp_path / f"{RUN_ID}.profd", seconds=SECONDS))


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
    profd: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    printed, file = profd("export", run, "--format", "collapsed", *options), tmp_path / "stacks.txt"
    assert (printed == "") == file.exists()
    samples = [int(line.rpartition(" ")[2]) for line in (printed or file.read_text()).splitlines()]
    assert sum(samples) == threads * SECONDS * RATE_HZ


def test_file_that_cannot_be_written_leaves_nothing_behind(
    run: str, tmp_path: Path, profd: CommandLine
) -> None:
    before = sorted(tmp_path.iterdir())
    for place in (tmp_path / "no" / "file", tmp_path):
        said = profd(
            "export", run, "--format", "collapsed", "-o", place, code=ExitCode.UNWRITABLE_OUTPUT
        )
        assert "-o FILE" in said
    profd("export", run, "--format", "gprof", code=ExitCode.USAGE)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "form", [name for name, each in FORMATS.items() if each.has_samples and name != "parquet"]
)
def test_an_export_without_samples_says_so(
    run: str, tmp_path: Path, profd: CommandLine, form: str
) -> None:
    empty = str(write_records(tmp_path / "empty.profd", [main_process()]))
    words = ("--format", form, "-o", tmp_path / "out")
    profd("export", empty, *words, code=ExitCode.NO_SAMPLES)
    assert "no samples were taken" in profd.err
    profd("export", run, *words, "--phase", "checkpoint")
    assert "none of the run's samples are selected: the export has none" in profd.err
    profd("export", run, *words, "--from", "1")
    assert profd.err == ""
