"""Parts of a running Python are looked at again and again, and left alone if there are none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import pytest
from support.clocks import StoppedClock
from support.synthetic import MAIN

from profd.daemon.interpreter.looks import READINGS, RETRY_S, TRIES, LookReader
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.store.records import Point, PointsTaken


class Part:
    """A part whose looks are given, or None for one that cannot be read."""

    read_s = 0.25

    def __init__(self, looks: Iterable[bool | None]) -> None:
        self._looks = iter(looks)
        self.closed = 0

    def look(self) -> bool:
        look = next(self._looks)
        if look is None:
            raise Unreadable("it has ended")
        return look

    def points(self, looks: Sequence[bool], seconds: float) -> tuple[Point, ...]:
        return (Point("a_share", sum(looks) / len(looks), MAIN), Point("seconds", seconds, MAIN))

    def close(self) -> None:
        self.closed += 1


def reader_of(part: Part) -> tuple[LookReader, StoppedClock, list[PointsTaken]]:
    records, clock = list[PointsTaken](), StoppedClock()
    python = SimpleNamespace(memory=part)
    reader = LookReader(MAIN, clock, records.append, lambda *_: part, lambda _: python)  # type: ignore[arg-type, return-value]
    return reader, clock, records


def test_looks_come_at_irregular_times_and_some_of_them_make_points() -> None:
    reader, clock, records = reader_of(Part([True] * 4 + [False] * (2 * READINGS - 4)))
    pauses = list[float]()
    for _ in range(2 * READINGS):
        pauses.append(reader.poll())
        clock.advance(0.5)
    seen = [[point.value for point in one.points] for one in records]
    assert seen == [[4 / READINGS, 0.5 * (READINGS - 1)], [0.0, 0.5 * READINGS]]
    assert sum(pauses) / len(pauses) == pytest.approx(Part.read_s, rel=0.1)
    assert len({round(pause, 4) for pause in pauses}) == len(pauses)


def test_a_program_that_becomes_another_one_is_looked_for_again_and_then_left_alone() -> None:
    part = Part([True, None, False] + [None] * TRIES)
    reader, _, records = reader_of(part)
    pauses = [reader.poll() for _ in range(TRIES + 2)]
    assert pauses[1] == RETRY_S
    assert pauses[-2] == RETRY_S
    assert pauses[-1] > 1e5
    assert (records, part.closed) == ([], TRIES)
