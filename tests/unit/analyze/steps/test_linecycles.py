"""Steps by the lines of a loop, counted where nothing else tells."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, describe, main_process, recording, run_started

from profd.daemon.analyze.steps.linecycles import LineCycles, count_lines
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame
from profd.daemon.store.writer import RunWriter

Stack = tuple[Frame, ...]
SCRIPT = "/home/ada/train.py"


def at(line: int, function: str = "<module>", *above: Frame) -> Stack:
    return (*above, Frame(function, SCRIPT, line))


FIRST, SECOND, EVALUATE = at(10), at(11), at(14)
STEP = [(FIRST, 30), (SECOND, 20)]


def run_of(path: Path, spans: Sequence[tuple[Stack, int]]) -> RunReader:
    """Write a run whose main thread stands in stacks for so many milliseconds each, one after the other."""
    writer = RunWriter(path, run_started(), describe)
    writer.put(main_process())
    length_ns = sum(length_ms for _, length_ms in spans) * 1_000_000
    writer.put(recording(MAIN, STARTED_NS, [(MAIN_TID, "MainThread", True, spans)], duration_ns=length_ns))
    writer.close()
    assert writer.failure is None, writer.failure
    return RunReader(path)


def counted(path: Path, spans: Sequence[tuple[Stack, int]]) -> LineCycles | None:
    with run_of(path, spans) as reader:
        thread = next(iter(reader.threads))
        return count_lines(reader, list(reader.intervals(None, None, [thread])))


def test_a_line_of_a_loop_comes_round_once_a_step(tmp_path: Path) -> None:
    found = counted(tmp_path / "r", STEP * 200)
    assert found is not None
    assert found.line.label in ("<module> (train.py:10)", "<module> (train.py:11)")
    assert found.cycles.count == 200
    assert (found.cycles.count - 1) / found.cycles.took_ns * SECOND_NS == pytest.approx(20, rel=0.01)


def test_what_comes_between_epochs_is_no_step_though_it_lasts_as_long(tmp_path: Path) -> None:
    epoch = [*STEP * 20, (EVALUATE, 50)]
    found = counted(tmp_path / "r", epoch * 20)
    assert found is not None
    assert found.cycles.count == 400
    assert (found.cycles.count - 1) / found.cycles.took_ns * SECOND_NS == pytest.approx(20 * 20 / 21, rel=0.01)


def test_a_line_that_comes_round_once_an_epoch_is_no_step(tmp_path: Path) -> None:
    """It is counted more exactly than those of steps that are held up now and then."""
    chance = random.Random(0)
    spans = []
    for _ in range(30):
        for _ in range(20):
            spans += [(stack, ms + (60 if chance.random() < 0.1 else 0)) for stack, ms in STEP]
        spans.append((EVALUATE, 200))
    found = counted(tmp_path / "r", spans)
    assert found is not None
    assert found.cycles.count > 500


def test_the_innermost_loop_that_is_nearly_always_on_is_counted(tmp_path: Path) -> None:
    inside = Frame("<module>", SCRIPT, 30)
    epoch = [
        *[(at(20, "train", inside), 30), (at(21, "train", inside), 20)] * 10,
        (at(31), 60),
    ]
    found = counted(tmp_path / "r", epoch * 40)
    assert found is not None
    assert found.line.function == "train"
    assert found.cycles.count == 400


def test_a_program_that_stands_still_makes_no_steps(tmp_path: Path) -> None:
    assert counted(tmp_path / "r", [(FIRST, 10_000)]) is None
