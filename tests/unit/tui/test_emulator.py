from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as some
from rich.style import Style

from profd.tui.cells import Run
from profd.tui.emulator import SCROLLED_LINES, Emulator
from profd.tui.terminal import Picture

PIECES = (
    *("\x1b[", "\x1b]", "\x1b", "\x9b", "\x9d", ";", "?", ">", "$", "#", "(", "%", "9999", "3", "²", "\x07", "\x0e"),
    *("m", "H", "r", "L", "M", "P", "@", "h", "l", "A", "J", "K", "S", "X", "c", "7", "8", "\n", "\r", "\t", "\x85"),
    *("abc", "é", "\u0301", "日", "😈", "\u202e", "\x00", "\ufffd"),
)


def text(picture: Picture) -> list[str]:
    return ["".join(run.text for run in line) for line in picture.lines]


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
    assert emulator.picture().lines == ((Run("keys", Style()),),)


def test_what_scrolls_out_is_kept_up_to_a_limit() -> None:
    emulator = Emulator(10, 3)
    emulator.feed("".join(f"{n}\r\n" for n in range(SCROLLED_LINES + 50)).encode())
    lines = text(emulator.picture())
    assert len(lines) == SCROLLED_LINES + 3
    assert lines[0] == str(SCROLLED_LINES + 50 - 2 - SCROLLED_LINES)
    assert lines[-3:] == [str(SCROLLED_LINES + 48), str(SCROLLED_LINES + 49), ""]
    emulator.feed(b"> ")
    assert emulator.picture().cursor == (2, len(lines) - 1)  # where the script writes next


def test_colors_come_out_by_name_or_by_number() -> None:
    emulator = Emulator(40, 2)
    emulator.feed(b"\x1b[1;33mw\x1b[0m \x1b[38;2;1;2;255mx\x1b[0m \x1b[105my\x1b[0m \x1b[38;2;9999;1;2mz")
    assert emulator.picture().lines == (
        (
            Run("w", Style(color="yellow", bold=True)),
            Run(" ", Style()),
            Run("x", Style(color="#0102ff")),
            Run(" ", Style()),
            Run("y", Style(bgcolor="bright_magenta")),
            Run(" ", Style()),
            Run("z", Style()),
        ),
    )


def test_lines_that_did_not_change_are_the_same_objects() -> None:
    emulator = Emulator(20, 4)
    emulator.feed(b"one\r\ntwo\r\n 1%")
    before = emulator.picture()
    emulator.feed(b"\r 2%")
    after = emulator.picture()
    assert after.lines[0] is before.lines[0]
    assert text(after) == ["one", "two", " 2%"]


@given(some.lists(some.sampled_from(PIECES), max_size=60), some.integers(1, 30), some.integers(1, 6))
def test_no_output_breaks_the_emulator(pieces: list[str], columns: int, lines: int) -> None:
    emulator = Emulator(columns, lines)
    for piece in pieces:
        emulator.feed(piece.encode())
    shown = text(emulator.picture())
    assert all(unicodedata.category(character)[0] != "C" for line in shown for character in line)
