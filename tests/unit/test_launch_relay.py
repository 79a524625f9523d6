"""The relay between a script's terminal and the real one: it always reads, and shows only when it is to."""

from __future__ import annotations

import os
import queue
import tty
from collections.abc import Iterator

import pytest

from profd.daemon.supervise.relay import Relay


class Ends:
    """A relay on a pseudo-terminal, with pipes for the real one's keys and screen."""

    def __init__(self) -> None:
        self.master_fd, self.script_fd = os.openpty()
        tty.setraw(self.script_fd)
        os.set_blocking(self.master_fd, False)
        self.keys_fd, self.keyboard_fd = os.pipe()
        self.screen_fd, self.shown_fd = os.pipe()
        self.kept: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.relay = Relay(self.master_fd, self.kept.put)
        self.relay.start()

    def show(self) -> None:
        """Let the relay have the real terminal."""
        self.relay.show(self.keys_fd, self.shown_fd)

    def write(self, data: bytes) -> None:
        """Write as the script, and wait until it was read."""
        os.write(self.script_fd, data)
        while data:
            data = data[len(self.kept.get(timeout=30)) :]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    if ends.relay.is_alive():
        os.close(ends.script_fd)
        ends.relay.finish()


def test_output_is_shown_and_kept(ends: Ends) -> None:
    ends.show()
    ends.write(b"\xffoutput")
    assert os.read(ends.screen_fd, 100) == b"\xffoutput"


def test_keys_reach_the_script(ends: Ends) -> None:
    ends.show()
    os.write(ends.keyboard_fd, b"keys")
    assert os.read(ends.script_fd, 100) == b"keys"


def test_hidden_relay_leaves_the_terminal_alone(ends: Ends) -> None:
    ends.show()
    ends.relay.hide()
    os.write(ends.keyboard_fd, b"keys")
    ends.write(b"hidden")
    ends.show()
    ends.write(b"shown")
    assert os.read(ends.screen_fd, 100) == b"shown"


def test_screen_that_is_gone_does_not_stop_the_script(ends: Ends) -> None:
    ends.show()
    os.close(ends.screen_fd)
    for _ in range(100):
        ends.write(b"x" * 4000)


def test_rest_is_shown_at_the_end(ends: Ends) -> None:
    ends.show()
    os.write(ends.script_fd, b"last words")
    os.close(ends.script_fd)
    ends.relay.finish()
    assert os.read(ends.screen_fd, 100) == b"last words"


def test_end_does_not_wait_for_those_the_script_left_behind(ends: Ends) -> None:
    ends.show()
    os.write(ends.script_fd, b"last words")
    ends.relay.finish()  # with the script's side still open
    assert os.read(ends.screen_fd, 100) == b"last words"
    os.close(ends.script_fd)
