"""What cannot be seen is spelled out; what can is left alone."""

from __future__ import annotations

import pytest

from profd.daemon.render.plaintext import visible


@pytest.mark.parametrize("text", ["", "forward", "for x in 数据:", "naïve 😈", "a\u00a0b <b>&amp;</b>", "e\u0301"])
def test_what_can_be_seen_is_left_alone(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202egnol", "\\u202egnol"),
        ("a\u2028b", "a\\u2028b"),
        ("\u200bhidden", "\\u200bhidden"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown
