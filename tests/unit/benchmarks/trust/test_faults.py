"""Faults by enumeration, some of each subject: the rest is `benchmarks/trust/faults.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support.folders import BENCHMARKS

EVERY = {
    "writer": 43,
    "reader": 23,
    "live file": 1,
    "register": 1,
    "report": 13,
    "export": 3,
    "tables": 31,
}
"""How many faults of a subject go by between two that are tried here."""


@pytest.mark.requires("cc")
@pytest.mark.parametrize("subject", EVERY)
def test_what_must_hold_after_a_fault_holds(subject: str) -> None:
    words = [
        sys.executable,
        str(BENCHMARKS / "run.py"),
        "faults",
        "--json",
        "--every",
        str(EVERY[subject]),
        subject,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)[subject]
    assert outcome["failures"] == []
    assert outcome["faults"] >= 3
    assert done.returncode == 0
