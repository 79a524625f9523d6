"""Masks what looks like a secret before it is stored.

It does so in the words of a command, and in lines of source and output.

A secret is recognized by the name it is given to (``--api-key X``, ``PASSWORD=X``), by its place in
an address (``https://user:X@host``), or by its own shape (``hf_…``). In doubt a word is masked: a
word too few in a run file does no harm, a password too many does. The stored part of a command is
bounded, and masking takes time linear in its length.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

MASK = "***"
CUT = "…"
"""Stands at the end of what was cut, and for words that were left out."""
WORD_CHARACTERS = 4096
COMMAND_CHARACTERS = 1 << 16
_READ_CHARACTERS = 3 * WORD_CHARACTERS  # enough to recognize any secret without its end

_SECRET_WORDS = frozenset(
    {"pass", "pwd", "pw", "passphrase", "auth", "authorization", "authkey", "bearer", "pat"}
) | {
    "secrets",
    "apikeys",
    "credential",
    "credentials",
    "accesskey",
    "secretkey",
    "privatekey",
}
_SECRET_ENDINGS = ("password", "passwd", "token", "secret", "apikey")
_KEYS = frozenset({"key", "keys", "token", "tokens"})
_KEY_OWNERS = frozenset(
    {
        "api",
        "access",
        "secret",
        "private",
        "auth",
        "account",
        "encryption",
        "license",
        "wandb",
        "ssh",
    }
)
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

# Any program may choose a word of up to 128 KB. So each pattern starts only at the first character
# of a name, never within it: otherwise a search that fails would scan the rest of the word from
# each character.
_NAME_START = r"(?<![\w.\-])"
_NAME = r"[A-Za-z_][\w.\-]*"
# A quote that is not closed extends to the end: in doubt it is masked.
_QUOTED = "|".join(
    rf"{mark}[^{mark}\\]*(?:\\[\s\S][^{mark}\\]*)*(?:{mark}|\\?\Z)" for mark in "\"'"
)
# The value ends at a character that would end it in a shell or an address.
_VALUE = re.compile(rf"(?:{_QUOTED}|[^\s\"'&;])+")

_WHOLE_ASSIGNMENT = re.compile(rf"(?P<name>[-+]*{_NAME})=(?P<value>.+)", re.DOTALL)
_ASSIGNED = re.compile(
    rf"{_NAME_START}(?:(?![A-Za-z_])[\w.\-])*(?P<name>{_NAME})[\"'\])]*\s*[=:]\s*"
)
_OPTION = re.compile(rf"{_NAME_START}(?:(?!--?[A-Za-z_])[\w.\-])*(?P<name>--?{_NAME})\s+(?!-)")
_HEADER = re.compile(r"(?P<name>authorization[\"']?\s*[:=]\s*[\"']?)[^\"'\n]+", re.IGNORECASE)
_SCHEME = re.compile(r"(?P<name>\b(?:bearer|basic)\s+)[^\s\"']+", re.IGNORECASE)
_JWT = re.compile(r"(?P<name>(?<![\w-])(?:(?!\beyJ)[\w-])*)eyJ[\w-]{8,}\.eyJ[\w-]+\.[\w-]*")
_SHAPES = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[a-z]-[\w-]{10,}"
    r"|nvapi-[\w-]{16,}|r8_\w{16,}|pypi-[\w-]{16,}|AKIA[A-Z0-9]{12,}|AIza[\w-]{20,})"
)
# In code, a key may be named "key", or be in a variable of any name. That counts if the text that
# follows looks like one. A line may be cut in the middle of it.
_LITERAL = re.compile(
    rf"(?<![\w.\-])(?P<name>{_NAME})(?P<between>[\"'\])]*\s*[=:,]\s*[rbuf]*[\"'])"
    rf"(?P<text>[^\"']+)(?=[\"']|$)"
)
_KEY_LENGTH = 12
_TOKEN = re.compile(
    r"(?<![\w+/.\-])(?=[\w+/]*\d)(?=[\w+/]*[a-z])"
    r"(?:[0-9a-f]{32,}|(?=[\w+/]*[A-Z])[\w+]{32,}={0,2})(?![\w+/.\-])"
)
_WITH_AT = re.compile(r"(?<!\S)\S+(?=@)")
_USER = re.compile(r"(?<=[\w+.\-])://[^\s:/@]*:(?=.)")
_CODE_OPTION = re.compile(r"-\w*c")
"""The next word is code that contains words of its own: ``bash -lc``, ``python -c``."""


def mask_command(words: Iterable[str]) -> tuple[str, ...]:
    """Return words with ``***`` for each secret, cut to their limits.

    Each word is cut to ``WORD_CHARACTERS``, all together to ``COMMAND_CHARACTERS``.
    """
    masked: list[str] = []
    before, left = "", COMMAND_CHARACTERS
    for word in words:
        if left <= 0:
            masked.append(CUT)
            break
        if _is_value_of_secret(before, word):
            masked.append(MASK)
        else:  # cut after the masking: the part of a secret before a cut would not be known for one
            shown = _mask_word(
                word[:_READ_CHARACTERS], is_code=_CODE_OPTION.fullmatch(before) is not None
            )
            is_whole = len(word) <= _READ_CHARACTERS and len(shown) <= WORD_CHARACTERS
            masked.append(shown if is_whole else f"{shown[:WORD_CHARACTERS]}{CUT}")
        before, left = word, left - len(masked[-1]) - 1
    return tuple(masked)


def mask_line(line: str) -> str:
    """Return a line of source or output with ``***`` in place of each secret.

    A secret is recognized by its name or by its shape.
    """
    line = _mask_word(line, is_code=True)
    return _TOKEN.sub(MASK, _LITERAL.sub(_mask_literal, line))


def _mask_literal(match: re.Match[str]) -> str:
    name, text = match["name"], match["text"]
    is_called_key = not _KEYS.isdisjoint(part.lower() for part in _NAME_PART.findall(name))
    looks_like_one = len(text) >= _KEY_LENGTH and " " not in text and any(map(str.isdigit, text))
    is_secret = is_secret_name(name) or (is_called_key and looks_like_one)
    return f"{name}{match['between']}{MASK if is_secret else text}"


def is_secret_name(name: str) -> bool:
    """Say whether a name is one of secrets: ``--hf-token``, ``WANDB_API_KEY``, ``dbPassword``."""
    parts = [part.lower() for part in _NAME_PART.findall(name)]
    if any(part in _SECRET_WORDS or part.endswith(_SECRET_ENDINGS) for part in parts):
        return True
    return any(owner in _KEY_OWNERS and key in _KEYS for owner, key in itertools.pairwise(parts))


def _is_value_of_secret(option: str, word: str) -> bool:
    """Say whether a word is the value of the secret option before it.

    A word with a dash is the next option.
    """
    is_option = option.startswith("-") and "=" not in option and not any(map(str.isspace, option))
    return is_option and is_secret_name(option) and bool(word) and not word.startswith("-")


def _mask_word(word: str, *, is_code: bool) -> str:
    whole = None if is_code else _WHOLE_ASSIGNMENT.fullmatch(word)
    if whole and is_secret_name(whole["name"]):
        return f"{whole['name']}={MASK}"
    for named in (_OPTION, _ASSIGNED):
        word = _mask_values(word, named)
    for certain in (_HEADER, _SCHEME, _JWT):
        word = certain.sub(rf"\g<name>{MASK}", word)
    return _SHAPES.sub(MASK, _WITH_AT.sub(_mask_password, word))


def _mask_password(before_at: re.Match[str]) -> str:
    """Mask the password in an address, given the text before its last ``@``, back to a space."""
    user = _USER.search(before_at[0])
    return f"{before_at[0][: user.end()]}{MASK}" if user else before_at[0]


def _mask_values(text: str, named: re.Pattern[str]) -> str:
    """Mask each value that follows a match of ``named`` whose name is that of a secret."""
    kept, at = [], 0
    for match in named.finditer(text):
        if (
            match.end() >= at
            and is_secret_name(match["name"])
            and (value := _VALUE.match(text, match.end()))
        ):
            kept += [text[at : match.end()], MASK]
            at = value.end()
    return "".join([*kept, text[at:]])
