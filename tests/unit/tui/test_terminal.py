from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.style import Style
from support import synthetic
from support.present import there
from support.waiting import until

from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.tui.emulator import SCROLLED_LINES, Emulator
from profd.tui.terminal import MOST_BYTES, STEP_BYTES, Picture, Playback, Terminal, key_bytes
from profd.tui.view import OutputView

SHOWN = OutputView(columns=40, lines=5, is_shown=True)
Write = Callable[..., RunReader]


def text(picture: Picture | None) -> list[str]:
    return ["".join(text for text, _ in line) for line in there(picture).lines]


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
        assert text(playback.play(OutputView(columns=7, lines=5, is_shown=True))) == [
            "one two",
            " three",
        ]


def test_of_much_output_the_end_is_shown(write: Write) -> None:
    lines = b"".join(b"%06d\r\n" % number for number in range(MOST_BYTES))
    with write(lines) as reader:
        picture = Playback(reader).play(SHOWN)
    assert text(picture)[-2:] == [f"{MOST_BYTES - 1:06d}", ""]
    assert all(len(line) in (0, 6) for line in text(picture))


def test_a_burst_is_played_a_little_at_a_time_and_wholly(tmp_path: Path) -> None:
    with (
        synthetic.live_run(tmp_path / "a.profd", seconds=1, workers=0) as run,
        RunReader(run.path) as reader,
    ):
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


def test_the_script_reads_what_is_typed_and_how_much_room_it_has_and_holds_nothing_up(
    pty: tuple[int, int],
) -> None:
    ours, scripts = pty
    assert Terminal(ours).write(b"yes\r")
    assert os.read(scripts, 100) == b"yes\r"
    Terminal(ours).resize(97, 13)
    until(lambda: os.get_terminal_size(scripts) == (97, 13), "the size")
    fd = os.dup(ours)
    gone = Terminal(fd)
    os.close(fd)
    gone.resize(80, 24)
    assert not gone.is_open
    assert not gone.write(b"x")
    # One that does not read holds nothing up.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    terminal = Terminal(writing)
    assert not terminal.write(b"x" * (1 << 20))
    assert terminal.is_open
    os.close(reading)
    os.close(writing)


PIECES = (
    *(
        "\x1b[",
        "\x1b]",
        "\x1b",
        "\x9b",
        "\x9d",
        ";",
        "?",
        ">",
        "$",
        "#",
        "(",
        "%",
        "9999",
        "3",
        "²",
        "\x07",
        "\x0e",
    ),
    *(
        "m",
        "H",
        "r",
        "L",
        "M",
        "P",
        "@",
        "h",
        "l",
        "A",
        "J",
        "K",
        "S",
        "X",
        "c",
        "7",
        "8",
        "\n",
        "\r",
        "\t",
        "\x85",
    ),
    *("abc", "é", "\u0301", "日", "😈", "\u202e", "\x00", "\ufffd"),
)


def shown(data: str, columns: int = 20, lines: int = 4) -> list[str]:
    emulator = Emulator(columns, lines)
    emulator.feed(data.encode())
    return text(emulator.picture())


def test_what_a_terminal_would_draw_is_read_and_what_would_reorder_it_left_out() -> None:
    assert shown("epoch 1\r\n 10%|#\r 20%|##\r 30%|###") == ["epoch 1", " 30%|###"]
    assert shown("a\u202eb\x85c\u2066d") == ["abcd"]
    (line,) = shown("a" + "\u0301" * 5000)
    assert len(line) < 10
    emulator = Emulator(10, 2)
    emulator.feed(b"\x1b[>4;2mkeys")
    assert emulator.picture().lines == ((("keys", Style()),),)


def test_what_scrolls_out_is_kept_up_to_a_limit() -> None:
    emulator = Emulator(10, 3)
    emulator.feed("".join(f"{n}\r\n" for n in range(SCROLLED_LINES + 50)).encode())
    lines = text(emulator.picture())
    assert len(lines) == SCROLLED_LINES + 3
    assert lines[0] == str(SCROLLED_LINES + 50 - 2 - SCROLLED_LINES)
    assert lines[-3:] == [str(SCROLLED_LINES + 48), str(SCROLLED_LINES + 49), ""]
    emulator.feed(b"> ")
    assert emulator.picture().cursor == (2, len(lines) - 1)  # where the script writes next


def test_colors_come_out_by_name_or_by_number_and_lines_that_did_not_change_are_the_same_objects() -> (
    None
):
    emulator = Emulator(40, 3)
    emulator.feed(
        b"\x1b[1;33mw\x1b[0m \x1b[38;2;1;2;255mx\x1b[0m \x1b[105my\x1b[0m "
        b"\x1b[38;2;9999;1;2mz\r\n 1%"
    )
    before = emulator.picture()
    looks = [
        Style(color="yellow", bold=True),
        Style(color="#0102ff"),
        Style(bgcolor="bright_magenta"),
        Style(),
    ]
    assert [run for run in before.lines[0] if run[0] != " "] == list(
        zip("wxyz", looks, strict=True)
    )
    emulator.feed(b"\r 2%")
    after = emulator.picture()
    assert after.lines[0] is before.lines[0]
    assert text(after) == ["w x y z", " 2%"]


@given(
    some.lists(some.sampled_from(PIECES), max_size=60), some.integers(1, 30), some.integers(1, 6)
)
def test_no_output_breaks_the_emulator(pieces: list[str], columns: int, lines: int) -> None:
    emulator = Emulator(columns, lines)
    for piece in pieces:
        emulator.feed(piece.encode())
    shown = text(emulator.picture())
    assert all(unicodedata.category(character)[0] != "C" for line in shown for character in line)
