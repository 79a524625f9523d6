"""The file of measurements: a section a benchmark, renewed by running it again."""

from __future__ import annotations

import json
from pathlib import Path

import measurements
import pytest


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "measurements.md"
    monkeypatch.setattr(measurements, "FILE", path)
    monkeypatch.setattr(measurements, "RESULTS", tmp_path / "results")
    return path


def test_section_is_replaced_where_it_stands(file: Path) -> None:
    for title in ("Cost", "Truth", "Disk"):
        measurements.write_section(title, "How.", [f"old {title}"])
    measurements.write_section("Truth", r"With \1 and \n in it.", ["new"])
    text = file.read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## Cost", "## Truth", "## Disk"]
    assert r"With \1 and \n in it." in text
    assert "old Truth" not in text
    assert "old Cost" in text
    assert "old Disk" in text


def test_title_that_begins_another_leaves_that_alone(file: Path) -> None:
    measurements.write_section("Cost of threads", "How.", ["threads"])
    measurements.write_section("Cost", "How.", ["all"])
    assert "threads" in file.read_text()


def test_numbers_are_kept_by_machine_and_what_changed_is_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def table(cpu: str) -> list[str]:
        return ["| run | CPU | RSS |", "|---|---:|---|", f"| **first** | {cpu} % | 1,059 MB |", "", "no table: 7"]

    for cpu in ("4.00", "4.20", "+5.00 [4.9, 5.1]"):
        measurements.write_section("Cost", "How.", table(cpu))
    (kept,) = file.with_name("results").iterdir()
    values = [one["values"] for one in json.loads(kept.read_text())["Cost"]]
    assert values == [{"first: CPU": cpu, "first: RSS": 1059.0} for cpu in (4.0, 4.2, 5.0)]
    assert capsys.readouterr().out == "Cost, first: CPU: 5, before 4.2\n"
