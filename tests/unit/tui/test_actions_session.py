"""What the session of a live run is asked for, and the words for what came of it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import msgspec
import pytest
from support.fakesession import FakeSession
from support.synthetic import write_run
from textual.message import Message

from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.errors import RunUnreadable, SessionFailed
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo
from profd.tui.actions import ActionDone, WindowRefused, change_rate, export, mark, stop, take_window, write_report_of


@pytest.fixture
def ended(tmp_path: Path) -> RunInfo:
    with RunReader(write_run(tmp_path / "a.profd", seconds=1)) as reader:
        return reader.info


@pytest.fixture
def live(ended: RunInfo) -> RunInfo:
    return msgspec.structs.replace(ended, state="live", control_socket="/run/profd.sock")


def said(outcome: Message) -> tuple[str, str]:
    assert isinstance(outcome, ActionDone)
    return outcome.title, outcome.text


def test_a_window_that_is_refused_may_be_taken_by_injection_once(session: FakeSession, live: RunInfo) -> None:
    session.is_armed = False
    assert isinstance(take_window(live), WindowRefused)
    assert said(take_window(live, inject=True))[0] == "Window"
    session.failure = SessionFailed("it failed", "try --inject")
    with pytest.raises(SessionFailed, match="it failed"):
        take_window(live, inject=True)


@pytest.mark.parametrize(
    ("now_hz", "steps", "wanted_hz"), [(100, 1, 200), (100, -1, 50), (73, 1, 100), (73, -1, 50), (1, 1, 2)]
)
def test_the_rate_goes_to_its_neighbor(
    session: FakeSession, live: RunInfo, now_hz: int, steps: int, wanted_hz: int
) -> None:
    session.rate_hz = now_hz
    assert said(change_rate(live, steps)) == ("Rate", f"profd samples at {wanted_hz} Hz instead of {now_hz} Hz")
    assert session.asked == [("rate", wanted_hz)]


def test_the_rate_ends_where_there_is_no_other_or_no_budget(session: FakeSession, live: RunInfo) -> None:
    session.rate_hz = 1
    assert said(change_rate(live, -1))[1] == "profd samples at 1 Hz, which is as far as it goes"
    assert session.asked == []
    session.rate_hz, session.most_hz = 100, 150
    told = "profd samples at 150 Hz instead of 100 Hz; 200 Hz would cost more than the budget"
    assert said(change_rate(live, 1))[1] == told


def test_a_run_that_has_ended_is_not_asked(session: FakeSession, ended: RunInfo) -> None:
    asked = (partial(mark, note="x"), stop, partial(change_rate, steps=1), take_window)
    for action in asked:
        with pytest.raises(SessionFailed, match="not recorded any more"):
            action(ended)
    assert session.asked == []


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return write_run(folder / "a.profd", seconds=2)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the current folder, which is another than that of runs."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_run_that_cannot_be_read_is_neither_reported_nor_exported(here: Path) -> None:
    broken = here / "broken.profd"
    broken.write_text("no run")
    with pytest.raises(RunUnreadable):
        write_report_of(broken)
    with pytest.raises(RunUnreadable):
        export(broken, "collapsed", MAIN_THREADS)
    assert list(here.iterdir()) == [broken]


def test_a_format_has_the_threads_that_it_tells_apart_or_those_looked_at(run_file: Path, here: Path) -> None:
    done = export(run_file, "collapsed", MAIN_THREADS)
    assert (done.title, done.text) == ("Exported", str(here / "a.collapsed.txt"))
    lines = (here / "a.collapsed.txt").read_text().splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 2 * 100
    export(run_file, "speedscope", MAIN_THREADS)
    assert len(json.loads((here / "a.speedscope.json").read_text())["profiles"]) == 4
    export(run_file, "csv", MAIN_THREADS)
    assert (here / "a-csv" / "samples.csv").is_file()
