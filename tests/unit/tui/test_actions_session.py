"""What the session of a live run is asked for, and the words for what came of it."""

from __future__ import annotations

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


def test_the_rate_goes_to_its_neighbor_as_far_as_there_is_one(session: FakeSession, live: RunInfo) -> None:
    for now_hz, steps, wanted_hz in ((100, 1, 200), (100, -1, 50), (73, 1, 100), (73, -1, 50), (1, 1, 2)):
        session.rate_hz = now_hz
        assert said(change_rate(live, steps)) == ("Rate", f"profd samples at {wanted_hz} Hz instead of {now_hz} Hz")
        assert session.asked.pop() == ("rate", wanted_hz)
    session.rate_hz = 1
    assert said(change_rate(live, -1))[1] == "profd samples at 1 Hz, which is as far as it goes"
    assert session.asked == []


def test_a_run_that_has_ended_is_not_asked(session: FakeSession, ended: RunInfo) -> None:
    asked = (partial(mark, note="x"), stop, partial(change_rate, steps=1), take_window)
    for action in asked:
        with pytest.raises(SessionFailed, match="not recorded any more"):
            action(ended)
    assert session.asked == []


def test_a_run_that_cannot_be_read_is_neither_reported_nor_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    broken = tmp_path / "broken.profd"
    broken.write_text("no run")
    for action in (write_report_of, partial(export, form="collapsed", selection=MAIN_THREADS)):
        with pytest.raises(RunUnreadable):
            action(broken)
    assert list((tmp_path / "here").iterdir()) == []
