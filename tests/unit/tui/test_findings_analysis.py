"""The dashboard's own analyst: started when it is needed, and gone with the dashboard."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.findingruns import LOAD_IN_PROCESS, step, write_case
from support.waiting import until

from profd.daemon.session.analyst import command
from profd.daemon.store.records import FindingsTaken
from profd.tui.findings import Analysis

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


class Children:
    """The processes that this one has started since; other tests leave some, as multiprocessing does its tracker."""

    def __init__(self) -> None:
        self._others = set(psutil.Process().children())

    def __call__(self) -> list[psutil.Process]:
        started = set(psutil.Process().children()) - self._others
        return [one for one in started if one.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def children() -> Children:
    return Children()


def test_it_says_what_it_finds_and_costs_something(run_file: Path, children: Children) -> None:
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
def test_one_that_dies_is_given_up(words: list[str], children: Children) -> None:
    with analysis(words) as found:
        assert not found.is_given_up
        until(lambda: found.poll() is None and found.is_given_up, "its end")
        assert found.poll() is None
        assert children() == []


def test_one_that_is_killed_is_given_up(run_file: Path, children: Children) -> None:
    with analysis(command(run_file)) as found:
        found.poll()
        (child,) = children()
        child.send_signal(signal.SIGKILL)
        until(lambda: found.poll() is None and found.is_given_up, "its end")


def test_one_that_is_not_asked_for_is_not_started(children: Children) -> None:
    with analysis(WAITS):
        assert children() == []
