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


def visible_json(text: str) -> str:
    """Return JSON with each invisible character as an escape of JSON's, but for the ends of its lines."""
    if text.isascii() and "\x7f" not in text:  # of these JSON itself leaves none but this one
        return text
    return "".join(
        _spell_json(character) if character != "\n" and unicodedata.category(character) in _HIDDEN else character
        for character in text
    )


def _spell_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _spell(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
