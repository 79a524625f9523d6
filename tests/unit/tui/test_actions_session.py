"""What the session of a live run is asked for, and the words for what came of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest
from support.fakesession import FakeSession
from support.synthetic import write_run
from textual.message import Message

from profd.daemon.errors import SessionFailed
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo
from profd.tui import actions
from profd.tui.actions import ActionDone, WindowRefused, change_rate, mark, stop, take_window


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    session = FakeSession()
    monkeypatch.setattr(actions, "ControlClient", session)
    monkeypatch.setattr(actions, "end_session", session.end)
    return session


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


def test_a_window_says_of_whom_it_is(session: FakeSession, live: RunInfo) -> None:
    assert said(take_window(live)) == ("Window", "taking 5 steps of 2 processes; 4 shows the operators")
    assert session.asked == [("window", False)]


def test_a_window_that_is_refused_may_be_taken_by_injection_once(session: FakeSession, live: RunInfo) -> None:
    session.is_armed = False
    assert isinstance(take_window(live), WindowRefused)
    assert said(take_window(live, inject=True))[0] == "Window"
    session.failure = SessionFailed("it failed", "try --inject")
    with pytest.raises(SessionFailed, match="it failed"):
        take_window(live, inject=True)


def test_marks_and_the_end_are_passed_on(session: FakeSession, live: RunInfo) -> None:
    assert said(mark(live, "spike")) == ("", "the moment is marked")
    assert said(stop(live)) == ("", "the recording ends; the script runs on")
    assert session.asked == [("mark", "spike"), "stop"]


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
