"""What several tests of the dashboard have."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import synthetic
from support.fakesession import FakeSession

from profd.tui import actions


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    session = FakeSession()
    monkeypatch.setattr(actions, "ControlClient", session)
    monkeypatch.setattr(actions, "end_session", session.end)
    return session


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=40)
