"""The one way to wait in tests: for a condition, with one deadline that no working machine meets."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from profd.daemon.errors import ProfdError
from profd.daemon.store.reader import RunReader

DEADLINE_S = 240.0
"""How long any test waits for anything.

Below the time that pytest gives a test, so that the reason is said.
"""

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05

Found = TypeVar("Found")


def until(
    condition: Callable[[], Found | None], what: str | Callable[[], str], deadlines: int = 1
) -> Found:
    """Wait until a condition gives something true, and return that.

    The failure says ``what`` has not happened. What runs with the lowest priority may need several
    ``deadlines`` beside other work, and its test a timeout that is longer than they are.
    """
    pauses = _pauses(what, deadlines * DEADLINE_S)
    while not (found := condition()):
        select.select([], [], [], next(pauses))
    return found


async def eventually(condition: Callable[[], Found | None], what: str | Callable[[], str]) -> Found:
    """Do as ``until``, and let the event loop run meanwhile."""
    pauses = _pauses(what)
    while not (found := condition()):
        await asyncio.sleep(next(pauses))
    return found


async def settled() -> None:
    """Let all tasks go on until they wait for what none of them does."""
    for _ in range(100):
        await asyncio.sleep(0)


def has_begun(run_file: Path) -> bool:
    """Say whether a run file can be read: it is there before its tables are."""
    try:
        RunReader(run_file).close()
    except ProfdError:
        return False
    return True


def count_recordings(run_file: Path) -> int:
    """Return how many recordings a run file has."""
    with RunReader(run_file) as reader:
        return len(reader.recordings())


def _pauses(what: str | Callable[[], str], longest_s: float = DEADLINE_S) -> Iterator[float]:
    """Yield how long to wait before the next look: short at first, so that what is quick is seen at
    once.
    """
    deadline = time.monotonic() + longest_s
    pause_s = _FIRST_PAUSE_S
    while time.monotonic() < deadline:
        yield pause_s
        pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
    raise AssertionError(f"not in {longest_s:.0f} s: {what if isinstance(what, str) else what()}")
