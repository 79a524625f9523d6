from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "target" / "gallery"


def diagnosed(
    script: str, home: Path, *, fixed: bool = False, seconds: int = 8
) -> tuple[list[dict[str, object]], str]:  # fmt: skip
    """Profile a script of the gallery; return its findings, and the closing lines."""
    environment = {**os.environ, "PROFD_HOME": str(home), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(GALLERY / f"{script}.py"), "--seconds", str(seconds), *(["--fixed"] * fixed)]
    profd = [sys.executable, "-m", "profd"]
    ran = subprocess.run(
        [*profd, "run", "--headless", "--", *words],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    told = subprocess.run(
        [*profd, "summary", "latest", "--json"], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(told.stdout)["findings"], ran.stderr


@pytest.mark.parametrize(
    ("script", "rule", "line"),
    [
        ("load_in_process", "input-bound-in-process", "for images, labels in loader:"),
        ("values_each_step", "synchronization", "largest = max("),
        ("slow_store", "input-bound-saturated", "for records, labels in loader:"),
    ],
)
def test_the_planted_cause_is_found_first_with_its_line(script: str, rule: str, line: str, tmp_path: Path) -> None:
    findings, said = diagnosed(script, tmp_path)

    assert findings, said
    first = findings[0]
    assert first["rule"] == rule
    assert first["severity"] in ("warning", "critical")
    assert isinstance(first["gain_bound"], float)
    evidence = first["evidence"]
    assert isinstance(evidence, dict)
    assert evidence["line"]["source"].startswith(line)
    assert f"▲ {str(first['title'])[:40]}" in said


def test_the_healthy_twin_has_no_finding_above_info(tmp_path: Path) -> None:
    # Long beside its startup: a run that spends a fifth of its time on that is not called healthy as a whole.
    findings, said = diagnosed("values_each_step", tmp_path, fixed=True, seconds=24)

    assert [one for one in findings if one["severity"] != "info"] == []
    assert "✓ healthy" in said
