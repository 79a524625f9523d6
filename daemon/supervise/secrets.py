"""Masks what looks like a secret in the words of a command, before they are shown or stored.

A secret is known by the name it is given to (``--api-key X``, ``PASSWORD=X``), by its place in an address
(``https://user:X@host``), or by its own shape (``hf_…``). In doubt it is masked: a word too few in a run file does no
harm, a password too many does.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

MASK = "***"

_SECRET_WORDS = frozenset({"pass", "pwd", "pw", "passphrase", "auth", "authorization", "authkey", "bearer", "pat"}) | {
    "secrets", "apikeys", "credential", "credentials", "accesskey", "secretkey", "privatekey",
}  # fmt: skip
_SECRET_ENDINGS = ("password", "passwd", "token", "secret", "apikey")
_KEYS = frozenset({"key", "keys", "token", "tokens"})
_KEY_OWNERS = frozenset(
    {"api", "access", "secret", "private", "auth", "account", "encryption", "license", "wandb", "ssh"}
)
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAME = r"[A-Za-z_][\w.\-]*"
_QUOTED = r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"
# The value ends where a shell or an address would end it.
_VALUE = re.compile(rf"(?:{_QUOTED}|[^\s\"'&;])+")

_WHOLE_ASSIGNMENT = re.compile(rf"(?P<name>[-+]*{_NAME})=(?P<value>.+)", re.DOTALL)
_ASSIGNED = re.compile(rf"(?P<name>{_NAME})[\"'\])]*\s*[=:]\s*")
_OPTION = re.compile(rf"(?P<name>--?{_NAME})\s+(?!-)")
_HEADER = re.compile(r"(?P<name>authorization[\"']?\s*[:=]\s*[\"']?)[^\"'\n]+", re.IGNORECASE)
_SCHEME = re.compile(r"(?P<name>\b(?:bearer|basic)\s+)[^\s\"']+", re.IGNORECASE)
_USERINFO = re.compile(r"(?P<name>\w[\w+.\-]*://[^\s:/@]*:)\S+(?=@)")
_SHAPES = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}"
    r"|nvapi-[\w-]{16,}|r8_\w{16,}|pypi-[\w-]{16,}|AKIA[A-Z0-9]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.eyJ[\w-]+\.[\w-]*)"
)
_CODE_OPTION = re.compile(r"-\w*c")


def mask_command(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a command, as many as before, with ``***`` in place of each secret."""
    masked: list[str] = []
    before = ""
    for word in words:
        masked.append(MASK if _is_value_of_secret(before, word) else _mask_word(word, is_code=_is_code_option(before)))
        before = word
    return tuple(masked)


def is_secret_name(name: str) -> bool:
    """Say whether what goes by this name is a secret: ``--hf-token``, ``WANDB_API_KEY``, ``dbPassword``."""
    parts = [part.lower() for part in _NAME_PART.findall(name)]
    if any(part in _SECRET_WORDS or part.endswith(_SECRET_ENDINGS) for part in parts):
        return True
    return any(owner in _KEY_OWNERS and key in _KEYS for owner, key in itertools.pairwise(parts))


def _is_value_of_secret(option: str, word: str) -> bool:
    """Say whether a word is the value of the secret option before it; one with a dash is the next option."""
    is_option = option.startswith("-") and "=" not in option and not any(map(str.isspace, option))
    return is_option and is_secret_name(option) and bool(word) and not word.startswith("-")


def _is_code_option(word: str) -> bool:
    """Say whether the next word is code, with words of its own: ``bash -lc``, ``python -c``."""
    return _CODE_OPTION.fullmatch(word) is not None


def _mask_word(word: str, *, is_code: bool) -> str:
    """Mask the secrets within one word."""
    whole = None if is_code else _WHOLE_ASSIGNMENT.fullmatch(word)
    if whole and is_secret_name(whole["name"]):
        return f"{whole['name']}={MASK}"
    for named in (_OPTION, _ASSIGNED):
        word = _mask_values(word, named)
    for certain in (_HEADER, _SCHEME, _USERINFO):
        word = certain.sub(rf"\g<name>{MASK}", word)
    return _SHAPES.sub(MASK, word)


def _mask_values(text: str, named: re.Pattern[str]) -> str:
    """Mask each value that follows on a match of ``named`` whose name says that it is a secret."""
    kept, at = "", 0
    for match in named.finditer(text):
        value = _VALUE.match(text, match.end()) if is_secret_name(match["name"]) else None
        if value and match.end() >= at:
            kept += text[at : match.end()] + MASK
            at = value.end()
    return kept + text[at:]
