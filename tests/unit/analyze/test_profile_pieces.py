"""The intervals of a selection, cut to what held meanwhile."""

from __future__ import annotations

from pathlib import Path

from support.synthetic import BACKWARD, MAIN, MAIN_TID, STARTED_NS, describe, main_process, recording, run_started

from profd.daemon.analyze.profile import selected_intervals
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow
from profd.daemon.store.writer import RunWriter


def pieces_of(path: Path, cores: list[float], selection: Selection) -> list[IntervalRow]:
    """Return what a selection takes of one stack of three seconds, with a reading of its CPU time each second."""
    writer = RunWriter(path, run_started(), describe)
    thread = (MAIN_TID, "MainThread", True, ((BACKWARD, 3000),))
    found: list[records.Record] = [main_process(), recording(MAIN, STARTED_NS, (thread,), duration_ns=3 * SECOND_NS)]
    for second, value in enumerate(cores):
        point = records.Point("cpu_cores", value, MAIN, MAIN_TID)
        found.append(records.PointsTaken(STARTED_NS + second * SECOND_NS, (point,)))
    for record in found:
        assert writer.put(record)
    writer.close()
    with RunReader(path) as reader:
        return list(selected_intervals(reader, selection, selection.threads(reader)))


def test_an_interval_in_two_parts_has_its_samples_once(tmp_path: Path) -> None:
    on_cpu = Selection(when=(Condition("on-cpu"),))
    first, last = pieces_of(tmp_path / "a.profd", [0.0, 0.9, 0.1, 0.9], on_cpu)
    assert [(piece.start_ns - STARTED_NS, piece.end_ns - STARTED_NS) for piece in (first, last)] == [
        (0, SECOND_NS),
        (2 * SECOND_NS, 3 * SECOND_NS),
    ]
    assert first.samples + last.samples == 200


def test_an_interval_of_which_nothing_held_is_left_out(tmp_path: Path) -> None:
    assert pieces_of(tmp_path / "a.profd", [0.0, 0.1, 0.1, 0.1], Selection(when=(Condition("on-cpu"),))) == []
    (whole,) = pieces_of(tmp_path / "b.profd", [0.0, 0.1, 0.1, 0.1], Selection())
    assert (whole.duration_ns, whole.samples) == (3 * SECOND_NS, 300)
