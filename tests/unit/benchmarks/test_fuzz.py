"""Hostile bytes, a few of each kind: nothing but the errors that are meant for them comes of it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from fuzz import fuzz
from fuzzsubjects import subjects
from mutations import mutate, mutate_values

CASES, READERS_OF_RUNS = 40, 7
OF_JSON = ("recording", "dump", "trace", "control")
SUBJECTS = (
    *("run-bytes", "run-values", "run-schemas", "recordings", "dumps", "sources", "output", "traces", "datagrams"),
    "control",
    *(f"{name}-values" for name in OF_JSON),
)


def test_every_subject_is_here(tmp_path: Path) -> None:
    assert sorted(subjects(tmp_path)) == sorted(SUBJECTS)


@pytest.mark.parametrize("name", SUBJECTS)
def test_what_is_meant_to_be_read_is_read(name: str, tmp_path: Path) -> None:
    subject = subjects(tmp_path)[name]
    for seed in subject.seeds:
        for reading in subject.readings(seed, random.Random(1)):
            reading()


@pytest.mark.parametrize("name", SUBJECTS)
def test_hostile_bytes_break_nothing(name: str, tmp_path: Path) -> None:
    outcome = fuzz(name, subjects(tmp_path)[name], range(CASES), seed=7)
    assert [finding.words for finding in outcome.findings] == []
    assert outcome.endings.total() == CASES * (READERS_OF_RUNS if name.startswith("run-") else 1)


def test_mutations_change_the_bytes_and_repeat_themselves() -> None:
    data = bytes(range(256)) * 4
    changed = [mutate(data, random.Random(seed)) for seed in range(50)]
    assert sum(one != data for one in changed) > 45
    assert changed == [mutate(data, random.Random(seed)) for seed in range(50)]


@pytest.mark.parametrize("name", OF_JSON)
def test_changed_values_are_still_read_by_some(name: str, tmp_path: Path) -> None:
    outcome = fuzz(f"{name}-values", subjects(tmp_path)[f"{name}-values"], range(CASES), seed=7)
    assert outcome.endings["read"] >= CASES / 20


def test_values_are_changed_and_the_text_stays_json() -> None:
    data = json.dumps({"a": [1, {"b": "c"}], "d": None}).encode()
    changed = [mutate_values(data, random.Random(seed)) for seed in range(50)]
    assert sum(json.loads(one) != json.loads(data) for one in changed) > 45
    assert changed == [mutate_values(data, random.Random(seed)) for seed in range(50)]
    assert mutate_values(b"[]", random.Random(1)) == b"[]"
