"""The colors of the dashboard: two quiet themes, and how a phase looks.

A phase has looks for terminals with many, few and no colors.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from profd.daemon.analyze.phases import PHASES, Phase

_COLORS = {
    # The accent is neither a color of a phase nor similar to one, so that it does not look like a
    # phase.
    "primary": ("#A3B1FF", "#3F4FC8"),
    "accent": ("#A3B1FF", "#3F4FC8"),
    "secondary": ("#6F8193", "#93A1AE"),
    "success": ("#3FB68B", "#00805D"),
    "warning": ("#E69F00", "#A86E00"),
    "error": ("#E5674E", "#B8401F"),
    "foreground": ("#D7DCE2", "#10161B"),
    "background": ("#0E1216", "#FBFBFA"),
    "surface": ("#141A20", "#F3F4F4"),
    "panel": ("#1B232B", "#E7EAEC"),
}
_DARK, _LIGHT = ({role: pair[number] for role, pair in _COLORS.items()} for number in (0, 1))
DARK = Theme("profd-dark", dark=True, **cast("dict[str, Any]", _DARK))
LIGHT = Theme("profd-light", dark=False, **cast("dict[str, Any]", _LIGHT))
_BUSY, _IDLE = Color.parse("#0072B2"), Color.parse("#E69F00")
_BLACK, _WHITE = Color(0, 0, 0), Color(255, 255, 255)
# With few colors a shade of the background may be rounded to the background itself.
_MANY_COLORS = frozenset({"truecolor", "256"})


class PhaseLook(msgspec.Struct, frozen=True):
    """How a phase looks: its letter, and the style of a cell filled with it.

    ``quiet`` is the style for areas in which the letter repeats, so that it does not stand out.
    ``label`` is the style for words that must be readable on the color. ``color`` is ``#rrggbb``,
    None with few colors or none, when only its letter distinguishes a phase.
    """

    letter: str
    cell: Style
    quiet: Style
    label: Style
    color: str | None


@functools.cache
def phase_looks(color_system: str | None) -> Mapping[str, PhaseLook]:
    """Return how each phase looks on a terminal; without color (None) only letters show them."""
    return {phase.name: _phase_look(phase, color_system) for phase in PHASES}


def _phase_look(phase: Phase, color_system: str | None) -> PhaseLook:
    color = Color.parse(phase.color)
    if color_system not in _MANY_COLORS:
        style = _on(color) if color_system else Style()
        return PhaseLook(phase.letter, style, style, style, None)
    return PhaseLook(phase.letter, _on(color, 0.6), _on(color, 0.14), _on(color, 0.92), phase.color)


@functools.lru_cache(maxsize=64)
def idle_look(tenths: int, color_system: str | None) -> PhaseLook:
    """Return how a GPU looks that was idle for ``tenths`` of the time.

    It goes from blue, all busy, to orange, all idle. Its letter is the number of tenths, which
    alone shows it without color.
    """
    color = _BUSY.blend(_IDLE, tenths / 10)
    style = _on(color) if color_system else Style()
    shown = color.hex if color_system in _MANY_COLORS else None
    return PhaseLook("X" if tenths >= 10 else str(tenths), style, style, style, shown)


def _on(color: Color, contrast: float = 1.0) -> Style:
    """Return the style of text on a color, at most in black or white."""
    text = color.blend(_BLACK if color.brightness > 0.45 else _WHITE, contrast)
    return Style(color=text.rich_color, bgcolor=color.rich_color)


def suited_theme() -> str:
    """Return this terminal's theme: light if ``COLORFGBG`` says so of its background."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT.name if background in {"7", "15"} else DARK.name
