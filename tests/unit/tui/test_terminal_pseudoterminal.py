from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterator

import pytest

from profd.tui.terminal import Terminal, key_bytes


@pytest.fixture
def pty() -> Iterator[tuple[int, int]]:
    """Give both ends of a pseudo-terminal: profd's, and the script's."""
    ours, scripts = os.openpty()
    yield ours, scripts
    os.close(ours)
    os.close(scripts)


@pytest.mark.parametrize(
    ("key", "character", "sent"),
    [
        ("a", "a", b"a"),
        ("é", "é", "é".encode()),
        ("enter", "\r", b"\r"),
        ("ctrl+c", "\x03", b"\x03"),
        ("ctrl+d", None, b"\x04"),
        ("backspace", "\x08", b"\x7f"),
        ("up", None, b"\x1b[A"),
        ("delete", "\x7f", b"\x1b[3~"),
        ("f24", None, b""),
    ],
)
def test_keys_become_what_a_terminal_sends(key: str, character: str | None, sent: bytes) -> None:
    assert key_bytes(key, character) == sent


def test_the_script_reads_what_is_typed(pty: tuple[int, int]) -> None:
    ours, scripts = pty

    assert Terminal(ours).write(b"yes\r")

    assert os.read(scripts, 100) == b"yes\n"


def test_the_script_learns_how_much_room_it_has(pty: tuple[int, int]) -> None:
    ours, scripts = pty

    Terminal(ours).resize(97, 13)

    assert struct.unpack("4H", fcntl.ioctl(scripts, termios.TIOCGWINSZ, bytes(8)))[:2] == (13, 97)


def test_a_script_that_does_not_read_holds_nothing_up() -> None:
    reading, writing = os.pipe()
    terminal = Terminal(writing)

    assert not terminal.write(b"x" * (1 << 20))

    assert terminal.is_open
    os.close(reading)
    os.close(writing)


def test_a_script_that_is_gone_takes_nothing(pty: tuple[int, int]) -> None:
    fd = os.dup(pty[0])
    terminal = Terminal(fd)
    os.close(fd)

    terminal.resize(80, 24)

    assert not terminal.is_open
    assert not terminal.write(b"x")
