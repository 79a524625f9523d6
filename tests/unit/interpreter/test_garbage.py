"""Whether running Pythons collect garbage, of each version that is here, and the share of time that
this becomes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.clocks import StoppedClock
from support.interpreters import READY, VERSIONS, python, standing
from support.synthetic import MAIN

from profd.daemon.interpreter.garbage import (
    READ_S,
    READINGS,
    RETRY_S,
    TRIES,
    GarbageReader,
    open_collector,
)
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.store.records import COLLECTING, Point, PointsTaken, Record

# A callback of the collector runs while it is at work.
COLLECTS = f"""
import gc
{READY}
gc.disable()
ready()
gc.callbacks.append(lambda phase, about: phase == "start" and ready())
gc.collect()
gc.callbacks.clear()
ready()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_collector_is_seen_at_work(version: str) -> None:
    with standing(COLLECTS, python(version)) as program:
        if version in ("3.8", "3.14", "3.15"):
            with pytest.raises(Unreadable, match="is not known"):
                open_collector(program.pid)
            return
        collector = open_collector(program.pid)
        seen = [collector.is_at_work()]
        for _ in range(2):
            program.go_on()
            seen.append(collector.is_at_work())
        collector.close()
    assert seen == [False, True, False]


def test_what_is_no_collector_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.daemon.interpreter.garbage._YOUNGEST", 104)
    with standing(f"{READY}\nready()") as program, pytest.raises(Unreadable, match="is not where"):
        open_collector(program.pid)


class Collector:
    """A collector whose looks are given: at work, not at work, or None for one that cannot be read."""

    def __init__(self, looks: Sequence[bool | None]) -> None:
        self._looks = iter(looks)
        self.closed = 0

    def is_at_work(self) -> bool:
        look = next(self._looks)
        if look is None:
            raise Unreadable("it has ended")
        return look

    def close(self) -> None:
        self.closed += 1


def reader_of(collector: Collector) -> tuple[GarbageReader, list[Record]]:
    records: list[Record] = []
    return GarbageReader(MAIN, StoppedClock(), records.append, lambda _: collector), records  # type: ignore[arg-type, return-value]


def test_looks_at_irregular_times_become_a_share() -> None:
    reader, records = reader_of(
        Collector(([True] * (READINGS // 4) + [False] * (READINGS - READINGS // 4)) * 2)
    )
    pauses = [reader.poll() for _ in range(2 * READINGS)]
    assert records == [PointsTaken(StoppedClock().now_ns(), (Point(COLLECTING, 0.25, MAIN),))] * 2
    assert sum(pauses) / len(pauses) == pytest.approx(READ_S, rel=0.1)
    assert len({round(pause, 4) for pause in pauses}) == len(pauses)


def test_a_program_that_becomes_another_one_is_looked_for_again_and_then_left_alone() -> None:
    collector = Collector([True, None, False] + [None] * TRIES)
    reader, records = reader_of(collector)
    pauses = [reader.poll() for _ in range(TRIES + 2)]
    assert pauses[1] == RETRY_S
    assert pauses[-2] == RETRY_S
    assert pauses[-1] > 1e5
    assert (records, collector.closed) == ([], TRIES)
