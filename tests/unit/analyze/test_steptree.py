"""The parts of a step: known times of known steps, and nothing of what lies beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.synthetic import (
    DATA_WAIT,
    MAIN,
    MAIN_TID,
    STARTED_NS,
    STEP,
    TRAIN,
    main_process,
    recording,
    steps_counted,
    write_records,
)

from profd.daemon.analyze.phases import PHASES, PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS, Condition, Selection
from profd.daemon.analyze.steps import Steps, take_steps
from profd.daemon.analyze.steptree import StepPart, take_step_tree
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame

STARTUP_S, STEPS, STEP_S = 10, 40, 0.5
PREPARE = (Frame("<module>", TRAIN, 96), Frame("prepare", TRAIN, 5))
LOG, DRAW = ((Frame("<module>", TRAIN, 96), Frame("train_epoch", TRAIN, line)) for line in (80, 81))
OF_A_STEP = (
    *((stack, length_ms) for stack, length_ms in STEP if stack is not DATA_WAIT),
    (LOG, 60),
    (DRAW, 40),
    (DATA_WAIT, 100),
)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    length_s = STARTUP_S + STEPS * STEP_S
    spans = ((PREPARE, 1000 * STARTUP_S), *(OF_A_STEP * STEPS))
    thread = (MAIN_TID, "MainThread", True, spans)
    taken = recording(MAIN, STARTED_NS, (thread,), duration_ns=round(length_s * SECOND_NS))
    counts = (steps_counted(STARTUP_S + step * STEP_S, step) for step in range(1, STEPS + 1))
    path = write_records(tmp_path / "a.profd", [main_process(), taken, *counts])
    with RunReader(path) as opened:
        yield opened


def tree_of(reader: RunReader, selection: Selection = MAIN_THREADS) -> StepPart | None:
    phases = PhaseIndex(reader)
    return take_step_tree(reader, selection, phases, take_steps(reader, selection, phases))


def milliseconds(part: StepPart) -> dict[str, float]:
    return {one.name: 1000 * one.seconds for one in part.parts}


def test_a_step_is_divided_into_groups_phases_and_lines(reader: RunReader) -> None:
    step = tree_of(reader)
    assert step is not None
    # The last wait for data is not between two steps.
    near = pytest.approx
    assert step.seconds == near(STEP_S)
    assert step.share == near(1.0)
    assert milliseconds(step) == near(
        {"input wait": 100, "compute": 280, "residual": 120}, rel=0.03
    )
    wait, compute, residual = step.parts
    assert milliseconds(compute) == near(
        {"forward": 100, "loss": 30, "backward": 100, "optimizer": 50}, rel=0.03
    )
    assert milliseconds(residual) == near({"synchronize": 20, "other": 100}, rel=0.03)
    assert milliseconds(residual.parts[1]) == near({"train.py:80": 60, "train.py:81": 40}, rel=0.03)
    (line,) = wait.parts[0].parts
    assert line.place is not None
    assert (line.place.line, line.place.source) == (58, "for images, labels in loader:")
    for part in (step, *step.parts):
        assert sum(one.seconds for one in part.parts) == near(part.seconds)


def test_phases_of_a_group_keep_their_order_whatever_takes_most(reader: RunReader) -> None:
    step = tree_of(reader)
    assert step is not None
    order = [phase.name for phase in PHASES]
    for group in step.parts:
        names = [order.index(one.name) for one in group.parts]
        assert names == sorted(names)


def test_no_time_is_told_where_it_is_not_that_of_a_step(reader: RunReader) -> None:
    phases = PhaseIndex(reader)
    steps = take_steps(reader, MAIN_THREADS, phases)
    for selection in (
        Selection(),
        Selection(main_threads=True, phase="forward"),
        Selection(main_threads=True, when=(Condition("on-cpu"),)),
        Selection(main_threads=True, to_ns=STARTED_NS + STARTUP_S * SECOND_NS // 2),
    ):
        assert take_step_tree(reader, selection, phases, steps) is None
    assert take_step_tree(reader, MAIN_THREADS, phases, Steps()) is None
