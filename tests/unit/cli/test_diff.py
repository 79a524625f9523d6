"""`profd diff`: what it prints of two runs; what a limit ends it with: tests/unit/compare/test_diff.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.jobruns import FORWARD, LOAD, Rank, write_job

from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """Give two runs of one rank: loading takes 100 ms of a step of 500 ms in the first, 250 ms in the second."""
    return tuple(
        str(write_job(tmp_path / name, Rank((LOAD, load_ms), (FORWARD, 100))))
        for name, load_ms in (("base.profd", 100), ("new.profd", 250))
    )  # type: ignore[return-value]


def test_json_has_what_changed_by_how_much_if_by_the_least(runs: tuple[str, str], capsys: Captured) -> None:
    def changed(*words: str) -> dict[str, tuple[float, float]]:
        assert run_command_line(["diff", *runs, "--json", *words]) == ExitCode.OK
        told = json.loads(capsys.readouterr().out)
        assert told["unit"] == "s/step"
        assert {"base", "new", "step_time", "phases", "leaves", "lines", "version"} <= told.keys()
        return {one["name"]: (one["base"], one["new"]) for one in told["phases"] if one["is_significant"]}

    assert changed().keys() == {"data load in process", "backward"}
    assert changed()["data load in process"] == pytest.approx((0.1, 0.25), abs=0.01)
    assert changed("--least", "50") == {}


def test_text_goes_to_stdout_and_a_report_to_its_file(runs: tuple[str, str], tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "diff.html"
    assert run_command_line(["diff", *runs, "-o", str(page)]) == ExitCode.OK
    said = capsys.readouterr()
    assert "data load in process" in said.out
    assert said.err == f"profd: wrote {page}\n"
    assert "Photos.__getitem__" in page.read_text()


def test_a_limit_that_is_none_is_refused_before_anything_is_read(capsys: Captured) -> None:
    assert run_command_line(["diff", "none", "none", "--fail-on", "much slower"]) == ExitCode.USAGE
