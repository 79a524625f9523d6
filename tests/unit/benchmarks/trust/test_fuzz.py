"""Hostile bytes, a few of each kind: nothing but the errors that are meant for them comes of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from trust.fuzz import fuzz
from trust.fuzzsubjects import subjects

CASES, READERS_OF_RUNS = 20, 8
OF_JSON = ("recording", "dump", "trace", "answer", "control")
SUBJECTS = (
    *(
        "run-bytes",
        "run-values",
        "run-schemas",
        "recordings",
        "dumps",
        "processes",
        "sources",
        "traces",
        "datagrams",
        "answers",
    ),
    "control",
    *(f"{name}-values" for name in OF_JSON),
)


@pytest.mark.parametrize("name", SUBJECTS)
def test_what_is_meant_to_be_read_is_read(name: str, tmp_path: Path) -> None:
    every = subjects(tmp_path)
    assert sorted(every) == sorted(SUBJECTS)
    subject = every[name]
    for seed in subject.seeds:
        for reading in subject.readings(seed, random.Random(1)):
            reading()


@pytest.mark.parametrize("name", SUBJECTS)
def test_hostile_bytes_break_nothing(name: str, tmp_path: Path) -> None:
    outcome = fuzz(name, subjects(tmp_path)[name], range(CASES), seed=7)
    assert [finding.words for finding in outcome.findings] == []
    assert outcome.endings.total() == CASES * (READERS_OF_RUNS if name.startswith("run-") else 1)
    if name.endswith("-values"):  # changed values are still read by some
        assert outcome.endings["read"] >= CASES / 20
