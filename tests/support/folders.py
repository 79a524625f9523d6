"""Where things lie in this repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
DATA = TESTS / "data"
PROGRAMS = TESTS / "programs"
TARGET = ROOT / "target"
BENCHMARKS = ROOT / "benchmarks"
DOCS = ROOT / "docs"
