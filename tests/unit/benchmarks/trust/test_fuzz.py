"""Hostile bytes, a few of each kind: nothing but the errors that are meant for them comes of it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from trust.fuzz import fuzz
from trust.fuzzsubjects import subjects
from trust.mutations import mutate, mutate_values

CASES, READERS_OF_RUNS = 40, 8
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


def test_bytes_and_values_are_changed_in_a_way_that_repeats_itself_and_the_text_stays_json() -> (
    None
):
    data = bytes(range(256)) * 4
    changed = [mutate(data, random.Random(seed)) for seed in range(50)]
    assert sum(one != data for one in changed) > 45
    assert changed == [mutate(data, random.Random(seed)) for seed in range(50)]
    data = json.dumps({"a": [1, {"b": "c"}], "d": None}).encode()
    changed = [mutate_values(data, random.Random(seed)) for seed in range(50)]
    assert sum(json.loads(one) != json.loads(data) for one in changed) > 45
    assert changed == [mutate_values(data, random.Random(seed)) for seed in range(50)]
    assert mutate_values(b"[]", random.Random(1)) == b"[]"
