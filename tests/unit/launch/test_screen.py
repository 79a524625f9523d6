"""The real terminal is as the script's is, from before the script's first line."""

from __future__ import annotations

import fcntl
import os
import signal
import termios
from types import SimpleNamespace
from typing import NoReturn

import pytest

from profd.daemon.launch import screen
from profd.daemon.launch.channel import make_channel
from profd.daemon.launch.script import Start
from profd.daemon.launch.signals import InheritedSignals
from profd.daemon.launch.terminal import RealTerminal
from profd.daemon.store.records import Identity


def test_the_terminal_makes_no_signal_of_a_key_once_the_script_can_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And it is as it was if the script cannot be started."""
    master_fd, terminal_fd = os.openpty()
    channel, session_end = make_channel()
    seen: list[int] = []

    def fail(*_: object) -> NoReturn:
        seen.append(termios.tcgetattr(terminal_fd)[3] & termios.ISIG)
        raise OSError

    monkeypatch.setattr(screen, "Relay", lambda *_: None)
    for name in ("fork_script", "keep_script"):
        monkeypatch.setattr(screen, name, fail)
    before = termios.tcgetattr(terminal_fd)
    shared = screen.SharedScreen(RealTerminal(terminal_fd), channel)
    shared.make_room()
    with pytest.raises(OSError):
        shared.start_script(Start(["true"], InheritedSignals(frozenset(), signal.SIG_DFL)))
    assert seen == [0]
    assert termios.tcgetattr(terminal_fd) == before
    shared.pseudo_terminal.release()
    for fd in (
        master_fd,
        terminal_fd,
        shared.pseudo_terminal.master_fd,
        shared.pseudo_terminal.anchor_fd,
    ):
        os.close(fd)
    channel.close()
    session_end.close()


def test_a_terminal_that_is_hung_up_does_not_end_the_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hang-up itself is still to be passed on to the script."""
    master_fd, terminal_fd = os.openpty()
    channel, session_end = make_channel()
    monkeypatch.setattr(screen, "Relay", lambda *_: SimpleNamespace(order=lambda **_: None))
    shared = screen.SharedScreen(RealTerminal(terminal_fd), channel)
    shared.start(Identity(os.getpid(), 0))
    os.close(master_fd)
    with pytest.raises(OSError):
        fcntl.ioctl(terminal_fd, termios.TIOCGWINSZ, bytes(8))
    shared.renew()
    shared.script_ended(Identity(os.getpid(), 0))
    for fd in (terminal_fd, shared.pseudo_terminal.master_fd, shared.pseudo_terminal.anchor_fd):
        os.close(fd)
    channel.close()
    session_end.close()
