"""The dashboard's own analyst: started when it is needed, again where it died, and gone with the dashboard."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.findingruns import LOAD_IN_PROCESS, step, write_case
from support.waiting import until

from profd.daemon.store.records import FindingsTaken
from profd.daemon.supervise.analyst import command
from profd.tui.reading.analysis import Analysis

DIES = [sys.executable, "-c", ""]
WAITS = [sys.executable, "-c", "input()"]


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    return write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 300)), seconds=60)


@contextlib.contextmanager
def analysis(words: list[str]) -> Iterator[Analysis]:
    with contextlib.closing(Analysis(words)) as found:
        yield found


def found_by(analysis: Analysis) -> FindingsTaken:
    said: list[FindingsTaken | None] = [None]

    def is_there() -> bool:
        said.append(analysis.poll())
        return said[-1] is not None

    until(is_there, "what it finds")
    assert said[-1] is not None
    return said[-1]


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]


def test_it_says_what_it_finds_and_costs_something(run_file: Path) -> None:
    with analysis(command(run_file)) as found:
        assert found.spent_s() == 0
        taken = found_by(found)
        assert [one.rule for one in taken.findings] == ["input-bound-in-process"]
        assert taken.made_by
        spent_s = found.spent_s()
        assert spent_s >= 0
    assert children() == []
    assert found.spent_s() >= spent_s


@pytest.mark.parametrize("words", [DIES, command(Path("/none.profd")), ["/does/not/exist"]])
def test_one_that_dies_is_started_again_but_not_for_ever(words: list[str]) -> None:
    with analysis(words) as found:
        assert not found.is_given_up
        until(lambda: found.poll() is None and found.is_given_up, "the end of the last one")
        assert found.poll() is None
        assert found._starts == 3


def test_one_that_was_killed_is_started_again(run_file: Path) -> None:
    with analysis(command(run_file)) as found:
        found.poll()
        (child,) = children()
        child.send_signal(signal.SIGKILL)
        # Its first thread may be gone while another still holds the pipe open: all of it has to have ended.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert found_by(found).findings


def test_one_that_is_not_asked_for_is_not_started() -> None:
    with analysis(WAITS):
        assert children() == []
