"""The screen that a script shares with the dashboard, from the script's first byte on."""

from __future__ import annotations

import os
import tty

import pytest

from profd.daemon.launch.channel import make_channel
from profd.daemon.launch.screen import SharedScreen
from profd.daemon.launch.terminal import Terminal
from profd.daemon.store.records import Identity


def test_what_a_script_writes_at_once_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """It may write, and end, before the screen has begun to show it."""
    far_fd, terminal_fd = os.openpty()
    tty.setraw(terminal_fd)
    channel, session = make_channel()
    screen = SharedScreen(Terminal(terminal_fd), channel)
    os.write(screen.pseudo_terminal.slave_fd, b"no such option")

    screen.start(Identity(os.getpid(), 0))
    screen.script_ended()

    assert capfd.readouterr().out == "no such option"
    for fd in (far_fd, terminal_fd, screen.pseudo_terminal.master_fd):
        os.close(fd)
    channel.close()
    session.close()
    screen._relay._end.close()
    os.waitpid(screen._relay._pid, 0)
