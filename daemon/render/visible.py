"""Makes text from a run harmless to read: what is invisible, or reorders its surroundings, is spelled out.

Function names, paths, source lines and command lines are whatever the profiled program made them. Escaping for HTML
keeps them from running; this keeps them from lying. It knows nothing of any output format.
"""

from __future__ import annotations

import unicodedata

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories without a picture of their own: controls, marks of direction, surrogates, line separators."""


def visible(text: str) -> str:
    r"""Return ``text`` with each invisible character as its escape: ``\n``, ``\x1b``, ``\u202e``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spell(character) if unicodedata.category(character) in _HIDDEN else character for character in text)


def _spell(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
