"""Small programs come to the same under profd's launcher as without it, on a terminal and without.

`support/launchprograms.py` has the programs, `support/stage.py` starts them. What differs is
listed, with its reason, in docs/launching.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.folders import DOCS, TESTS
from support.launchprograms import EVERYWHERE, PROGRAMS
from support.waiting import DEADLINE_S

STAGE = [sys.executable, str(TESTS / "support" / "stage.py")]
_ROW = re.compile(r"^\| ([\w ]+) \|", re.MULTILINE)

Outcome = dict[str, Any]
Results = dict[str, tuple[Outcome, Outcome]]


class Stages:
    """The stages of all ways, which play at the same time: a program waits more than it computes."""

    def __init__(self) -> None:
        self._started = {way: _start([*STAGE, way]) for way in EVERYWHERE}

    def results(self, way: str) -> Results:
        out, _ = self._started[way].communicate(timeout=10 * DEADLINE_S)
        found: Results = json.loads(out)
        return found

    def close(self) -> None:
        for process in self._started.values():
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def stages() -> Iterator[Stages]:
    made = Stages()
    yield made
    made.close()


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/")


def test_there_are_enough_programs_and_each_difference_has_a_reason() -> None:
    assert len(PROGRAMS) >= 150
    listed = _ROW.findall((DOCS / "launching.md").read_text().partition("## What differs")[2])
    assert {program.differs for program in PROGRAMS.values()} - {""} <= set(listed)


@pytest.mark.timeout(10 * DEADLINE_S)
@pytest.mark.parametrize("way", EVERYWHERE)
def test_programs_come_to_the_same(stages: Stages, way: str) -> None:
    judge(stages.results(way))


def judge(results: Results) -> None:
    """Compare what each program came to plainly and launched; raises AssertionError."""
    assert len(results) > 30
    wrong = {
        name: outcomes
        for name, outcomes in results.items()
        if (outcomes[0] == outcomes[1]) == bool(PROGRAMS[name].differs)
        or "stands still" in str(outcomes)
    }
    assert not wrong
