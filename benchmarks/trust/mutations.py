"""Changes sound bytes into hostile ones: bytes at random, or the values of a JSON text, so that it
still is one.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

HOSTILE_VALUES = (
    None,
    -1,
    0,
    1 << 62,
    -(1 << 62),
    1 << 63,
    (1 << 64) - 1,
    -(1 << 63) - 1,
    10**400,
    1e308,
    float("inf"),
    "",
    "x" * 1000,
    "\x00\ud7ff",
    b"\xff\xfe",
    "[]",
    "{}",
)
_TOKENS = (
    b"null",
    b"-1",
    b"1e999",
    b"9" * 30,
    b'"',
    b"[",
    b"{",
    b"]" * 50,
    b"[" * 2000,
    b"\xff",
    b"\0",
    b"\\ud800",
)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Return bytes changed at one to eight places: flipped, cut, doubled, moved, or replaced by
    hostile ones.
    """
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(changed) + 1)
        length = chance.choice((1, 2, 4, 8, 64, 512))
        kind = chance.randrange(5)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[place : place + length] = chance.randbytes(length)
        elif kind == 2:
            changed[place : place + chance.choice((0, length))] = chance.choice(_TOKENS)
        elif kind == 3:
            del changed[place : place + length]
        else:
            changed[place:place] = changed[place : place + length]
    return (
        bytes(changed)
        if chance.randrange(20)
        else bytes(changed[: chance.randrange(len(changed) + 1)])
    )


def mutate_values(data: bytes, chance: random.Random) -> bytes:
    """Return a JSON text with one to four of its values replaced, moved, doubled or left out."""
    tree = json.loads(data)
    for _ in range(chance.randint(1, 4)):
        places = list(_places(tree))
        if not places:
            break
        _spoil(chance.choice(places), places, chance)
    return json.dumps(tree).encode()


class _Place(NamedTuple):
    """Where a value is: its list or object, and its index or key there."""

    holder: Any
    key: Any


def _spoil(place: _Place, places: list[_Place], chance: random.Random) -> None:
    """Change one value."""
    holder, key = place
    kind = chance.randrange(4)
    if kind == 0:
        hostile = chance.choice(HOSTILE_VALUES)
        holder[key] = hostile.decode(errors="replace") if isinstance(hostile, bytes) else hostile
    elif kind == 1:
        other = chance.choice(places)
        holder[key] = copy.deepcopy(other.holder[other.key])
    elif kind == 2 and isinstance(holder, list):
        holder.insert(chance.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    else:
        del holder[key]


def _places(tree: object) -> Iterator[_Place]:
    """Yield where every value of a tree is."""
    waiting: list[Any] = [tree]
    while waiting:
        holder = waiting.pop()
        keys = (
            range(len(holder))
            if isinstance(holder, list)
            else list(holder)
            if isinstance(holder, dict)
            else ()
        )
        for key in keys:
            yield _Place(holder, key)
            waiting.append(holder[key])
