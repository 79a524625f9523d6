"""Faults by enumeration, some of each subject: the rest is `benchmarks/trust/faults.py`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from common.steps import Took
from cost.many_threads import Ended, StateWatch, failures
from support.folders import BENCHMARKS
from trust.kills import Kill, wrong_links

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


def test_a_wrong_link_is_seen(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    diary.write_text("00\n")
    assert wrong_links(diary) == (1, 1)


def test_what_is_lost_or_stopped_is_not_sound() -> None:
    sound = Kill(1.0, frozenset("RS"), True, 1.0, "")
    assert sound.is_sound()
    assert not sound._replace(states=frozenset("RT")).is_sound()
    assert not sound._replace(ran_on=False).is_sound()
    assert not sound._replace(lost_s=9.0).is_sound()
    assert not sound._replace(failure="damaged").is_sound()


GOOD = Ended(Took(2.0, 1.0), 0, 242, 100, 0)


def test_hung_failed_and_stopped_runs_are_counted_apart() -> None:
    hung, failed, stopped = (
        Ended(None, None, 0, 10, 0),
        Ended(None, -6, 0, 10, 0),
        GOOD._replace(stopped=3),
    )
    rounds = [{"profd": run, "bare": GOOD, "null": GOOD} for run in (hung, failed, stopped, GOOD)]
    assert failures(rounds, "profd") == (1, 1, 1)
    assert failures(rounds, "bare") == (0, 0, 0)


def test_stopped_process_is_seen() -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        watch = StateWatch(process.pid)
        watch.start()
        never, looks = threading.Event(), 0
        while not watch.stopped and looks < 2000:
            never.wait(0.01)
            looks += 1
        watch.close()
        process.kill()
    assert watch.stopped > 0
    assert watch.looks >= watch.stopped
