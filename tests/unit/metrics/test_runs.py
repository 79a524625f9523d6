"""Which runs are told of: those that are recorded, as they come and go."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import live_run, write_run

from profd.daemon.metrics import catalog
from profd.daemon.metrics.runs import FRESH_S, Folder, Runs


class Ticks:
    """A clock on which everything that is asked is asked anew."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.step_s = FRESH_S

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def names(runs: Runs) -> list[str]:
    """Return the runs that are told of, a name for each."""
    return [sample.labels[0] for sample in runs.samples() if sample.metric is catalog.RUN_INFO]


def test_a_folder_has_its_live_runs_as_they_come_and_go(tmp_path: Path) -> None:
    write_run(tmp_path / "old.profd")
    runs = Runs(Folder(tmp_path), Ticks())
    assert names(runs) == []

    with live_run(tmp_path / "a.profd") as first:
        assert len(names(runs)) == 1
        with live_run(tmp_path / "b.profd"):
            assert len(names(runs)) == 2
        first.end()
        assert len(names(runs)) == 2  # of the one that ended its last values
        assert len(names(runs)) == 1


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert names(Runs(Folder(tmp_path / "none"), Ticks())) == []


def test_a_damaged_file_hides_no_run(tmp_path: Path) -> None:
    (tmp_path / "damaged.profd").write_bytes(b"SQLite format 3\0" + bytes(200))
    with live_run(tmp_path / "a.profd"):
        runs = Runs(Folder(tmp_path), Ticks())
        assert len(names(runs)) == 1
        assert len(names(runs)) == 1


def test_a_run_whose_file_is_gone_is_told_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with live_run(tmp_path / "a.profd") as run:
        runs = Runs(lambda: (run.path,), Ticks())
        assert len(names(runs)) == 1
        away = run.path.rename(tmp_path / "b")
        assert names(runs) == []
        assert "a.profd cannot be read" in capsys.readouterr().err
        away.rename(run.path)


def test_who_asks_again_at_once_is_told_the_same(tmp_path: Path) -> None:
    ticks = Ticks()
    with live_run(tmp_path / "a.profd") as run:
        runs = Runs(lambda: (run.path,), ticks)
        ticks.step_s = 0.0
        first = runs.samples()
        run.advance()
        assert runs.samples() is first
        ticks.step_s = FRESH_S
        assert runs.samples() is not first


def test_there_is_any_until_it_ends(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd") as run:
        runs = Runs(lambda: (run.path,))
        assert not runs.is_any()
        runs.look_for_runs()
        assert runs.is_any()
        run.end()
        runs.samples()
    assert not runs.is_any()
