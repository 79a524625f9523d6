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

from profd.daemon.launch.keyboard import DashboardKeyboard
from profd.daemon.launch.terminal import PseudoTerminal
from profd.daemon.launch.terminal import RealTerminal as LaunchersTerminal
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
    """Give the dashboard's way to a script's terminal, and that terminal, which takes keys one by
    one.
    """
    far_fd, near_fd = os.openpty()
    attributes = termios.tcgetattr(near_fd)
    attributes[0] = attributes[3] = 0
    termios.tcsetattr(near_fd, termios.TCSANOW, attributes)
    made = PseudoTerminal(LaunchersTerminal(near_fd))
    keyboard = DashboardKeyboard(made)
    keyboard.start()
    yield keyboard.dashboards_fd, made.slave_fd
    keyboard.end()
    for fd in (
        far_fd,
        near_fd,
        made.master_fd,
        made.slave_fd,
        made.lifeline_fd,
        made.anchor_fd,
        keyboard.dashboards_fd,
    ):
        os.close(fd)


@pytest.fixture
async def opened(ended: Path) -> AsyncIterator[OpenDashboard]:
    async with open_dashboard(ended) as opened:
        yield opened
