"""What several tests of the dashboard have."""

from __future__ import annotations

import pytest
from support.fakesession import FakeSession

from profd.tui import actions


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    session = FakeSession()
    monkeypatch.setattr(actions, "ControlClient", session)
    monkeypatch.setattr(actions, "end_session", session.end)
    return session
