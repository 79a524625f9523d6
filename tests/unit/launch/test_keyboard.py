"""The keys of a script's terminal: from the real one, and from its dashboard."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import tty
from collections import deque
from collections.abc import Iterator

import pytest
from support.waiting import DEADLINE_S, until

from profd.daemon.launch import keyboard as keyboard_module
from profd.daemon.launch.keyboard import (
    DashboardKeyboard,
    Keyboard,
    keys_packet,
    signal_packet,
    size_packet,
)
from profd.daemon.launch.terminal import PseudoTerminal, RealTerminal


@pytest.fixture
def terminal() -> Iterator[PseudoTerminal]:
    """Yield the terminal of a script that reads each key."""
    far_fd, near_fd = os.openpty()
    tty.setraw(near_fd)
    made = PseudoTerminal(RealTerminal(near_fd))
    yield made
    for fd in (far_fd, near_fd, made.master_fd, made.slave_fd, made.lifeline_fd, made.anchor_fd):
        os.close(fd)


@pytest.fixture
def keyboard(terminal: PseudoTerminal) -> Iterator[tuple[Keyboard, int, int]]:
    """Yield a keyboard, the descriptor to press its keys, and the script's terminal."""
    keys_fd, pressed_fd = os.pipe()
    made = Keyboard(keys_fd, terminal)
    made.start()
    yield made, pressed_fd, terminal.slave_fd
    if made.is_alive():
        made.end()
    for fd in (keys_fd, pressed_fd):
        os.close(fd)


Pressed = tuple[Keyboard, int, int]


def test_keys_wait_for_a_script_that_does_not_read_and_are_someone_elses_in_the_end(
    keyboard: Pressed,
) -> None:
    board, pressed_fd, script_fd = keyboard
    typed = b"k" * 20_000  # more than a terminal takes
    os.write(pressed_fd, typed)
    seen = b""
    while len(seen) < len(typed):
        seen += os.read(script_fd, 4096)
    assert seen == typed
    assert board.is_alive()
    board.end()
    os.write(pressed_fd, b"keys")
    assert board._keys_fd is not None
    assert os.read(board._keys_fd, 100) == b"keys"


def test_a_key_that_someone_else_took_holds_nobody_up(
    keyboard: Pressed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the terminal and the read, a shell may have had it."""
    board, pressed_fd, _ = keyboard
    asked = threading.Event()
    read = os.read

    def read_late(fd: int, most: int) -> bytes:
        asked.set()
        return read(never_fd, most)

    never_fd, other_fd = os.pipe()
    monkeypatch.setattr(os, "read", read_late)
    monkeypatch.setattr(keyboard_module, "_KEY_TIMEOUT_S", 0.01)
    os.write(pressed_fd, b"k")
    assert asked.wait(DEADLINE_S)
    board.end()
    assert board.is_alive()
    os.close(other_fd)
    board.join(DEADLINE_S)
    os.close(never_fd)


def test_a_dashboard_sends_keys_and_sizes_and_has_no_hold_on_the_terminal(
    terminal: PseudoTerminal,
) -> None:
    board = DashboardKeyboard(terminal)
    board.start()
    os.write(board.dashboards_fd, keys_packet(b"yes\r"))
    os.write(board.dashboards_fd, size_packet(97, 13))
    assert os.read(terminal.slave_fd, 100) == b"yes\r"
    until(lambda: os.get_terminal_size(terminal.slave_fd) == (97, 13), "the size")
    assert not os.isatty(board.dashboards_fd)
    board.end()
    with pytest.raises(OSError, match="Broken pipe"):
        os.write(board.dashboards_fd, keys_packet(b"x"))
    os.close(board.dashboards_fd)


def test_a_dashboard_signals_the_group_that_the_terminals_keys_reach(
    terminal: PseudoTerminal,
) -> None:
    def lead() -> None:
        terminal.lead()
        os.tcsetpgrp(terminal.slave_fd, os.getpid())

    with subprocess.Popen(["sleep", "1000"], preexec_fn=lead) as script:
        board = DashboardKeyboard(terminal)
        board.start()
        for packet in (b"i", b"i\x00", b"i\xff", signal_packet(signal.SIGTERM)):
            os.write(board.dashboards_fd, packet)
        assert script.wait(DEADLINE_S) == -signal.SIGTERM
        board.end()
        os.close(board.dashboards_fd)


def test_ctrl_c_is_remembered(keyboard: Pressed) -> None:
    board, pressed_fd, script_fd = keyboard
    for keys, is_interrupt in ((b"x", False), (b"a\x03b", True), (b"y", True)):
        os.write(pressed_fd, keys)
        assert os.read(script_fd, 4096) == keys
        assert board.has_interrupted is is_interrupt


def test_keys_that_nobody_takes_are_refused(terminal: PseudoTerminal) -> None:
    board = DashboardKeyboard(terminal)
    sizes = iter(range(1000, 0, -1))
    with pytest.raises(BlockingIOError):
        deque((os.write(board.dashboards_fd, keys_packet(b"x" * 250)) for _ in sizes), maxlen=0)
    os.close(board.dashboards_fd)
    board._ours.close()
