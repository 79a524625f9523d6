"""What is said of a run's findings to the session that records it, which knows nothing of how they are found."""

from __future__ import annotations

import msgspec


class Sighting(msgspec.Struct, frozen=True):
    """A finding that a run has now: the name of its rule, and one sentence that says it with its number."""

    rule: str
    title: str


def encode(sightings: tuple[Sighting, ...]) -> bytes:
    """Return the findings of one look as a line of JSON."""
    return msgspec.json.encode(sightings) + b"\n"


def decode(line: bytes) -> tuple[Sighting, ...]:
    """Return the findings in a line; raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=tuple[Sighting, ...])
