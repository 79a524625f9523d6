"""Blocks of a run that is compared: how long a step is in all of them together."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import DATA_WAIT, MAIN, MAIN_TID, STARTED_NS, describe, main_process, recording, run_started

from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.compare.blocks import Blocks, Item, Mean, take_blocks
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken, Record, RunEnded
from profd.daemon.store.writer import RunWriter

SLOW, QUICK = 300, 100  # ms
LENGTHS_MS = [SLOW] * 100 + [QUICK] * 300
WAIT: Item = ("phase", "data wait", "", 0)


def write_two_paces(path: Path) -> Path:
    """Write a run whose steps take a third as long from the half of its time on."""
    ends_ms = [sum(LENGTHS_MS[: step + 1]) for step in range(len(LENGTHS_MS))]
    length_ns = ends_ms[-1] * MILLISECOND_NS
    thread = (MAIN_TID, "MainThread", True, [(DATA_WAIT, length_ms) for length_ms in LENGTHS_MS])
    found: list[Record] = [main_process(), recording(MAIN, STARTED_NS, (thread,), duration_ns=length_ns)]
    for step, end_ms in enumerate(ends_ms[:-1], 1):
        found.append(PointsTaken(STARTED_NS + end_ms * MILLISECOND_NS, (Point("step_count", float(step), MAIN),)))
    writer = RunWriter(path, run_started(), describe)
    for record in [*found, RunEnded(STARTED_NS + length_ns, "target-exited", 0)]:
        assert writer.put(record), writer.failure
    writer.close()
    return path


def test_the_length_of_a_step_is_that_of_all_steps_and_not_of_all_blocks(tmp_path: Path) -> None:
    with RunReader(write_two_paces(tmp_path / "run.profd")) as reader:
        blocks = take_blocks(reader, Selection())
    assert blocks.paces
    assert blocks.step_s is not None
    assert blocks.step_s.value == pytest.approx(0.150, abs=0.002)  # of the blocks it is 0.200


def test_parts_of_a_step_add_up_to_its_length() -> None:
    blocks = Blocks(2, {WAIT: [0.5, 0.5]}, Mean(0.15, 0.01), [0.3, 0.1], 0, 1, {})
    assert blocks.mean(WAIT, by_step=True).value == pytest.approx(0.075)
