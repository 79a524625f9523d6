"""What the stored recordings are expected to say: ``tests/recordings/expected`` and ``bounds.toml``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import pytest

from support.recordings import RECORDINGS, recording_names
from support.replayresults import Replayed, replayed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@lru_cache(None)
def _bounds() -> Mapping[str, Mapping[str, float]]:
    return tomllib.loads((RECORDINGS / "bounds.toml").read_text())


@lru_cache(None)
def expected(name: str) -> Mapping[str, Any]:
    """Return the results of a recording as they are stored."""
    found: dict[str, Any] = json.loads((RECORDINGS / "expected" / f"{name}.json").read_text())
    return found


def for_each(names: Iterable[str]) -> pytest.MarkDecorator:
    """Run a test for each of these recordings."""
    return pytest.mark.parametrize("name", list(names))


def names_with(topic: str) -> list[str]:
    """Return the recordings whose diary tells the truth about a topic."""
    return [name for name in recording_names() if topic in expected(name)["errors"]]


def check_results(name: str, *topics: str) -> Replayed:
    """Replay a recording, and compare what the product says about these topics, to the last digit."""
    found = replayed(name)
    assert {topic: found.results[topic] for topic in topics} == {topic: expected(name)[topic] for topic in topics}
    return found


def check_truth(name: str, topic: str) -> None:
    """Compare the distance from the program's diary with what is stored, and with its bound."""
    error = replayed(name).errors[topic]
    assert error == expected(name)["errors"][topic]
    assert error <= _bounds()[name][topic]
