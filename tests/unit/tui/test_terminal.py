from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from support import synthetic

from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.tui.terminal import MOST_BYTES, STEP_BYTES, Picture, Playback, Terminal, key_bytes
from profd.tui.view import OutputView

SHOWN = OutputView(columns=40, lines=5, is_shown=True)
Write = Callable[..., RunReader]


def text(picture: Picture | None) -> list[str]:
    assert picture is not None
    return ["".join(run.text for run in line) for line in picture.lines]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a run with this output, and open it."""

    def write(*output: bytes) -> RunReader:
        written = (records.OutputWritten(synthetic.STARTED_NS, data) for data in output)
        return RunReader(synthetic.write_records(tmp_path / "a.profd", written))

    return write


def test_nothing_is_read_before_it_is_shown(write: Write) -> None:
    with write(b"one two ", b"three") as reader:
        playback = Playback(reader)
        assert playback.play(OutputView()) is None
        assert text(playback.play(SHOWN)) == ["one two three"]
        assert playback.play(SHOWN) is None
        # Other room shows all of it anew.
        assert text(playback.play(OutputView(columns=7, lines=5, is_shown=True))) == ["one two", " three"]


def test_of_much_output_the_end_is_shown(write: Write) -> None:
    lines = b"".join(b"%06d\r\n" % number for number in range(MOST_BYTES))
    with write(lines) as reader:
        picture = Playback(reader).play(SHOWN)
    assert picture is not None
    assert text(picture)[-2:] == [f"{MOST_BYTES - 1:06d}", ""]
    assert all(len(line) in (0, 6) for line in text(picture))


def test_a_burst_is_played_a_little_at_a_time_and_wholly(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=1, workers=0) as run, RunReader(run.path) as reader:
        playback = Playback(reader)
        playback.play(SHOWN)
        burst = b"\r\n" + b"x" * 39 + b"\r\n" * (STEP_BYTES * 2) + b"the end\r\n"
        run.writer.put(records.OutputWritten(run.started_ns, burst))
        run.advance()
        pictures = []
        while (picture := playback.play(SHOWN)) is not None:
            pictures.append(picture)
    assert len(pictures) == -(-len(burst) // STEP_BYTES) >= 3
    assert "the end" in text(pictures[-1])
    assert "the end" not in text(pictures[0])


def test_of_output_that_the_run_file_has_dropped_in_part_the_end_is_shown(write: Write) -> None:
    with write(*[b"x" * (1 << 20)] * 6, b"end") as reader:
        playback = Playback(reader)
        *_, last = iter(lambda: playback.play(SHOWN), None)
    assert last is not None
    assert "".join(text(last)).endswith("xend")


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


def test_the_script_reads_what_is_typed_and_how_much_room_it_has_and_holds_nothing_up(pty: tuple[int, int]) -> None:
    ours, scripts = pty
    assert Terminal(ours).write(b"yes\r")
    assert os.read(scripts, 100) == b"yes\r"
    Terminal(ours).resize(97, 13)
    assert struct.unpack("4H", fcntl.ioctl(scripts, termios.TIOCGWINSZ, bytes(8)))[:2] == (13, 97)
    fd = os.dup(ours)
    gone = Terminal(fd)
    os.close(fd)
    gone.resize(80, 24)
    assert not gone.is_open
    assert not gone.write(b"x")
    # One that does not read holds nothing up.
    reading, writing = os.pipe()
    terminal = Terminal(writing)
    assert not terminal.write(b"x" * (1 << 20))
    assert terminal.is_open
    os.close(reading)
    os.close(writing)
