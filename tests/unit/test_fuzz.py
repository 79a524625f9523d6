"""Hostile bytes, a few of each kind: nothing but the errors that are meant for them comes of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz import SLOWEST_S, fuzz, mutate, subjects

CASES = 120
SUBJECTS = ("run-bytes", "run-values", "recordings", "dumps", "counters", "traces", "datagrams", "control")


def test_every_subject_is_here(tmp_path: Path) -> None:
    assert tuple(subjects(tmp_path)) == SUBJECTS


@pytest.mark.parametrize("name", SUBJECTS)
def test_what_is_meant_to_be_read_is_read(name: str, tmp_path: Path) -> None:
    subject = subjects(tmp_path)[name]
    for seed in subject.seeds:
        if name != "run-values":
            subject.read(seed, random.Random(1))


@pytest.mark.parametrize("name", SUBJECTS)
def test_hostile_bytes_break_nothing(name: str, tmp_path: Path) -> None:
    outcome = fuzz(name, subjects(tmp_path)[name], CASES, seed=7)
    assert [finding.words for finding in outcome.findings] == []
    assert outcome.slowest_s < SLOWEST_S
    assert sum(outcome.endings.values()) == CASES


def test_mutations_change_the_bytes_and_repeat_themselves() -> None:
    data = bytes(range(256)) * 4
    changed = [mutate(data, random.Random(seed)) for seed in range(50)]
    assert sum(one != data for one in changed) > 45
    assert changed == [mutate(data, random.Random(seed)) for seed in range(50)]
