"""What several tests of the dashboard have."""

from __future__ import annotations

import os
import termios
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard
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


@pytest.fixture
def pty() -> Iterator[tuple[int, int]]:
    """Give both ends of a pseudo-terminal: profd's, and the script's, which takes keys one by one."""
    ours, scripts = os.openpty()
    attributes = termios.tcgetattr(scripts)
    attributes[0] = attributes[3] = 0
    termios.tcsetattr(scripts, termios.TCSANOW, attributes)
    yield ours, scripts
    os.close(ours)
    os.close(scripts)


@pytest.fixture
async def opened(ended: Path) -> AsyncIterator[OpenDashboard]:
    async with open_dashboard(ended) as opened:
        yield opened
