"""The file of measurements: a section a benchmark, renewed by running it again."""

from __future__ import annotations

from pathlib import Path

import measurements
import pytest


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "measurements.md"
    monkeypatch.setattr(measurements, "FILE", path)
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
