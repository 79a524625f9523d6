"""`profd diff`: what it prints of two runs.

What a limit ends it with: tests/unit/compare/test_diff.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commandline import CommandLine
from support.jobruns import FORWARD, LOAD, Rank, write_job

from profd.daemon.errors import ExitCode


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """Give two runs of one rank: loading takes 100 ms of a step of 500 ms in the first, 250 ms in
    the second.
    """
    return tuple(
        str(write_job(tmp_path / name, Rank((LOAD, load_ms), (FORWARD, 100))))
        for name, load_ms in (("base.profd", 100), ("new.profd", 250))
    )  # type: ignore[return-value]


def test_json_has_what_changed_by_how_much_if_by_the_least(
    runs: tuple[str, str], profd: CommandLine
) -> None:
    def changed(*words: str) -> dict[str, tuple[float, float]]:
        diff = json.loads(profd("diff", *runs, "--json", *words))
        assert diff["unit"] == "s/step"
        assert {"base", "new", "step_time", "phases", "leaves", "lines", "version"} <= diff.keys()
        return {
            one["name"]: (one["base"], one["new"])
            for one in diff["phases"]
            if one["is_significant"]
        }

    assert changed().keys() == {"data load in process", "backward"}
    assert changed()["data load in process"] == pytest.approx((0.1, 0.25), abs=0.01)
    assert changed("--least", "50") == {}


def test_text_goes_to_stdout_and_a_report_to_its_file(
    runs: tuple[str, str], tmp_path: Path, profd: CommandLine
) -> None:
    page = tmp_path / "diff.html"
    assert "data load in process" in profd("diff", *runs, "-o", page)
    assert profd.err == f"profd: wrote {page}\n"
    assert "Photos.__getitem__" in page.read_text()


def test_two_ranges_of_one_run_are_compared(runs: tuple[str, str], profd: CommandLine) -> None:
    def compared(*words: str) -> list[float]:
        diff = json.loads(profd("diff", runs[0], runs[0], "--json", *words))
        return [diff[side]["compared_s"] for side in ("base", "new")]

    (whole, _) = compared()
    assert compared("--to", "10", "--new-from", "10") == pytest.approx([10, whole - 10], abs=1)
    assert compared("--from", "10", "--new-to", "5") == pytest.approx([whole - 10, 5], abs=1)
    assert compared("--from", "10") == pytest.approx([whole - 10, whole - 10], abs=1)


def test_a_limit_that_is_none_is_refused_before_anything_is_read(profd: CommandLine) -> None:
    profd("diff", "none", "none", "--fail-on", "much slower", code=ExitCode.USAGE)
