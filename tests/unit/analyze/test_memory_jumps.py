"""Jumps of memory, with the line that they are owed to and what else happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support import synthetic
from support.memorycurves import MB
from support.synthetic import BACKWARD, LOSS, MAIN, MAIN_TID, STARTED_NS

from profd.daemon.analyze.memory import MOST_JUMPS, Jump, jumps
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point
from profd.daemon.store.writer import RunWriter

SECONDS = 60


def found_in(
    path: Path, value: Callable[[int], float], more: Sequence[records.Record] = (), selection: Selection | None = None
) -> tuple[Jump, ...]:
    writer = RunWriter(path / "a.profd", synthetic.run_started(), synthetic.describe)
    for record in (synthetic.main_process(), *more):
        assert writer.put(record)
    for second in range(SECONDS):
        point = Point("rss_bytes", value(second), MAIN)
        assert writer.put(records.PointsTaken(STARTED_NS + second * SECOND_NS, (point,)))
    writer.close()
    with RunReader(path / "a.profd") as reader:
        return jumps(reader, PhaseIndex(reader), selection or Selection())


def stepped(second: int) -> float:
    return 1e9 + (500 * MB if second >= 30 else 0) + (second % 3) * MB


def test_a_jump_has_its_time_and_size(tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, stepped)
    assert (found.pid, found.series) == (MAIN.pid, "rss_bytes")
    assert (found.from_ns, found.at_ns) == (STARTED_NS + 29 * SECOND_NS, STARTED_NS + 30 * SECOND_NS)
    assert found.by_bytes == pytest.approx(500 * MB, abs=3 * MB)
    assert (found.stack, found.line, found.events) == (None, None, ())


def test_a_jump_is_tied_to_the_stack_and_the_events_of_that_moment(tmp_path: Path) -> None:
    spans = [(BACKWARD, 29_200), (LOSS, 700), (BACKWARD, 100)]
    threads = [(MAIN_TID, "MainThread", True, spans)]
    more: list[records.Record] = [
        synthetic.recording(MAIN, STARTED_NS, threads, duration_ns=30 * SECOND_NS),
        records.EventHappened(STARTED_NS + 28 * SECOND_NS, "started", "worker 1", MAIN),
        records.EventHappened(STARTED_NS + 40 * SECOND_NS, "ended", "worker 1", MAIN),
    ]
    (found,) = found_in(tmp_path, stepped, more)
    assert found.line is not None
    assert (found.line.function, found.line.source) == ("train_epoch", "loss = criterion(logits, labels)")
    assert [event.text for event in found.events] == ["worker 1"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("leak", lambda second: 1e8 + 50 * MB * second),
        ("peak", lambda second: 1e9 + (500 * MB if second == 30 else 0)),
        ("fall", lambda second: 1e9 - (500 * MB if second >= 30 else 0)),
        ("small", lambda second: 1e9 + (20 * MB if second >= 30 else 0)),
        ("swing", lambda second: 1e9 + 300 * MB * (second * 7 % 5)),
        ("return", lambda second: 1e9 + (500 * MB if second % 20 > 2 else 0) * (second > 21 and second % 20 < 5)),
    ],
)
def test_what_is_no_jump(tmp_path: Path, name: str, value: Callable[[int], float]) -> None:
    assert found_in(tmp_path, value) == ()


def test_only_those_in_the_range_and_the_largest_are_told_in_order_of_time(tmp_path: Path) -> None:
    def rising(second: int) -> float:
        return 1e9 * 1.2 ** (second // 5)

    found = found_in(tmp_path, rising)
    assert len(found) == MOST_JUMPS
    assert [jump.at_ns for jump in found] == sorted(jump.at_ns for jump in found)
    assert found[-1].at_ns == STARTED_NS + 55 * SECOND_NS
    (tmp_path / "a.profd").unlink()
    early = found_in(tmp_path, rising, selection=Selection(to_ns=STARTED_NS + 20 * SECOND_NS))
    assert [jump.at_ns - STARTED_NS for jump in early] == [second * SECOND_NS for second in (5, 10, 15)]
