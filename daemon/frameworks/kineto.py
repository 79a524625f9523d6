"""What all readers of Kineto's traces share: their JSON, their largest size, their times."""

from __future__ import annotations

from typing import TypeVar

import msgspec

Parsed = TypeVar("Parsed")

LIMIT_BYTES = 1 << 30


def parse(text: bytes, kind: type[Parsed]) -> Parsed:
    """Return what a trace's JSON holds; a kernel may be called anything, in any encoding."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (UnicodeDecodeError, msgspec.DecodeError):  # by the version of msgspec
        return msgspec.json.decode(text.decode(errors="replace"), type=kind)


def time_ns(microseconds: float) -> int:
    """Return microseconds with three decimals as whole nanoseconds.

    The whole part is converted separately: a double with a quarter of a year in microseconds has
    just enough digits for the decimals.
    """
    whole = int(microseconds)
    return whole * 1000 + round((microseconds - whole) * 1000)
