"""The terminal's answer on its background is taken out of what is typed, however it comes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support import synthetic
from support.dashboard import open_dashboard
from textual.events import Key

from profd.tui.colors import DARK, LIGHT
from profd.tui.driver import BackgroundTold, Parser

ENDS = ("\x07", "\x1b\\")


def fed(*parts: str) -> tuple[list[str], list[bool]]:
    """Return the keys, and what was told, of input that comes in parts."""
    parser, keys, told = Parser(), list[str](), list[bool]()
    for part in (*filter(None, parts), ""):
        for message in parser.feed(part):
            if isinstance(message, Key):
                keys.append(message.key)
            elif isinstance(message, BackgroundTold):
                told.append(message.is_light)
    return keys, told


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("color", "told"),
    [
        ("rgb:ffff/ffff/ffff", [True]),
        ("rgb:fdfd/f6f6/e3e3", [True]),
        ("rgb:0/0/0", [False]),
        ("rgb:1e/1e/2e", [False]),
        ("rgba:ff/ff/ff/80", [True]),
        ("rgb:0000/0000/ffff", [False]),
        ("?", []),
        ("", []),
    ],
)
def test_a_color_is_light_or_dark_and_none_of_it_is_a_key(
    color: str, told: list[bool], end: str
) -> None:
    assert fed(f"\x1b]11;{color}{end}") == ([], told)


@given(
    some.text("abq1?", max_size=4),
    some.text("abq1?", max_size=4),
    some.integers(2, 25),
    some.sampled_from(ENDS),
)
def test_keys_around_an_answer_in_two_parts_are_keys(
    before: str, after: str, cut: int, end: str
) -> None:
    answer = f"\x1b]11;rgb:ffff/ffff/ffff{end}"
    keys, told = fed(before + answer[:cut], answer[cut:] + after)
    assert told == [True]
    assert len(keys) == len(before + after)


def test_keys_that_begin_like_an_answer_are_keys_all_the_same() -> None:
    for keys in ("\x1b]x", "\x1b]12;", "]11;rgb"):
        assert fed(*keys)[0]
        assert fed(*keys)[1] == []


async def test_the_theme_follows_the_background(tmp_path: Path) -> None:
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd", seconds=3)) as opened:
        for is_light, theme in ((True, LIGHT), (False, DARK)):
            opened.app.post_message(BackgroundTold(is_light=is_light))
            await opened.settle()
            assert opened.app.current_theme is theme
