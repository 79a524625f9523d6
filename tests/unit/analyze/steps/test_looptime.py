"""When a loop was stepping, by the stacks of a synthetic run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, describe, main_process, recording, run_started

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.steps.looptime import LoopTime
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame
from profd.daemon.store.rows import PointRow
from profd.daemon.store.writer import RunWriter

Stack = tuple[Frame, ...]
SCRIPT = "/home/ada/train.py"
SOURCE = "loop counter `i` in train (ada/train.py:20)"
MAIN_FRAME = Frame("<module>", SCRIPT, 80)
SETUP = (MAIN_FRAME, Frame("build", SCRIPT, 5))
STEP, SAVE, AFTER = ((MAIN_FRAME, Frame("train", SCRIPT, line)) for line in (20, 30, 40))
EVALUATE = (*STEP, Frame("evaluate", SCRIPT, 60))


def loop_of(
    path: Path,
    spans: Sequence[tuple[Stack, float]],
    *counted_s: float,
    source: str = SOURCE,
    mode: str = "launched",
    found_s: float = 0.0,
) -> LoopTime:
    """Return the time of a loop whose main thread stands in stacks for so many seconds each.

    Its process was found so many seconds after the run began.
    """
    writer = RunWriter(path, msgspec.structs.replace(run_started(), mode=mode), describe)
    writer.put(main_process(at_ns(found_s)))
    spans_ms = [(stack, round(1000 * seconds)) for stack, seconds in spans]
    length_ns = sum(length_ms for _, length_ms in spans_ms) * SECOND_NS // 1000
    writer.put(recording(MAIN, STARTED_NS, [(MAIN_TID, "MainThread", True, spans_ms)], duration_ns=length_ns))
    writer.close()
    assert writer.failure is None, writer.failure
    with RunReader(path) as reader:
        process = next(iter(reader.processes))
        counts = [PointRow(at_ns(seconds), 0.0) for seconds in counted_s]
        return LoopTime(reader, PhaseIndex(reader), process, source, (STARTED_NS, STARTED_NS + length_ns), counts)


def at_ns(seconds: float) -> int:
    return STARTED_NS + round(seconds * SECOND_NS)


def stepping_s(loop: LoopTime, from_s: float, to_s: float) -> float:
    return loop.stepping_ns(at_ns(from_s), at_ns(to_s)) / SECOND_NS


def test_a_loop_steps_while_its_lines_are_on_the_stack(tmp_path: Path) -> None:
    loop = loop_of(tmp_path / "r", [(SETUP, 3), (STEP, 10), (AFTER, 2), (SETUP, 1)], 5, 12)
    assert stepping_s(loop, 0, 5) == pytest.approx(2)
    assert stepping_s(loop, 5, 12) == pytest.approx(7)
    assert stepping_s(loop, 12, 16) == pytest.approx(1)


@pytest.mark.parametrize(
    ("mode", "found_s", "stepped_s"),
    [("attached", -0.5, 4.5), ("launched", -0.5, 4), ("attached", -3, 4), ("attached", 0.2, 4)],
)
def test_a_process_steps_from_when_it_is_attached_to_until_it_is_sampled(
    tmp_path: Path, mode: str, found_s: float, stepped_s: float
) -> None:
    loop = loop_of(tmp_path / "r", [(STEP, 10), (AFTER, 2)], 4, 9, mode=mode, found_s=found_s)
    assert stepping_s(loop, -5, 4) == pytest.approx(stepped_s)


def test_a_loop_does_not_step_while_it_evaluates(tmp_path: Path) -> None:
    loop = loop_of(tmp_path / "r", [(STEP, 5), (EVALUATE, 3), (STEP, 2), (EVALUATE, 3), (STEP, 2)], 1, 9)
    assert stepping_s(loop, 1, 9) == pytest.approx(5)
    assert stepping_s(loop, 9, 15) == pytest.approx(1 + 2)


def test_what_looks_like_a_startup_in_every_step_is_a_part_of_it(tmp_path: Path) -> None:
    """A generator that the loop takes its batches from, called `get_dataloader`, say."""
    load = (STEP[0], Frame("train", SCRIPT, 19), Frame("get_dataloader", SCRIPT, 70))
    loop = loop_of(
        tmp_path / "r", [(load, 0.5), (STEP, 3), (load, 0.5), (STEP, 3), *[(load, 0.5), (STEP, 1)] * 2], 3.6, 10
    )
    assert stepping_s(loop, 0, 3.6) == pytest.approx(3.6)
    once = loop_of(tmp_path / "once", [(load, 0.5), (STEP, 3), (load, 0.5), (STEP, 6)], 3.8, 10)
    assert stepping_s(once, 0, 3.5) == pytest.approx(3)


def test_lines_of_the_function_that_no_step_runs_are_none_of_the_loop(tmp_path: Path) -> None:
    loop = loop_of(tmp_path / "r", [(SAVE, 2), (STEP, 5), (SAVE, 3)], 3, 6)
    assert stepping_s(loop, 0, 10) == pytest.approx(5)


def test_a_generator_is_in_its_loop_all_the_time_though_it_is_seldom_on_the_stack(tmp_path: Path) -> None:
    elsewhere = (MAIN_FRAME, Frame("forward", SCRIPT, 7))
    spans = [(SETUP, 2.0), *[(STEP, 0.1), (elsewhere, 0.9)] * 10, (SETUP, 3.0)]
    loop = loop_of(tmp_path / "r", spans, 4, 9)
    assert stepping_s(loop, 4, 9) == pytest.approx(5)
    assert stepping_s(loop, 0, 4) == pytest.approx(2)
    # Until it was last seen, and after that for as long as it was not seen in between, where the stacks are its own.
    assert stepping_s(loop, 9, 15) == pytest.approx(3)


def test_a_generator_that_is_not_seen_for_longer_than_ever_has_ended(tmp_path: Path) -> None:
    elsewhere = (MAIN_FRAME, Frame("forward", SCRIPT, 7))
    inside = [(STEP, 0.1), (elsewhere, 0.9)] * 10
    loop = loop_of(tmp_path / "r", [(elsewhere, 3.0), *inside, (elsewhere, 2.0)], 5, 11)
    assert stepping_s(loop, 0, 5) == pytest.approx(0.9 + 2)
    assert stepping_s(loop, 11, 20) == pytest.approx(1.1 + 0.9)


def test_a_progress_bar_is_a_generator_though_it_waits_most_of_the_time(tmp_path: Path) -> None:
    waiting = (MAIN_FRAME, Frame("tqdm.__iter__", "/lib/tqdm/std.py", 1181))
    elsewhere = (MAIN_FRAME, Frame("forward", SCRIPT, 7))
    spans = [(SETUP, 2.0), *[(waiting, 0.7), (elsewhere, 0.3)] * 10]
    loop = loop_of(tmp_path / "r", spans, 4, 9, source="loop counter `n` in tqdm.__iter__ (tqdm/std.py:1181)")
    assert stepping_s(loop, 4, 9) == pytest.approx(5)
    assert stepping_s(loop, 0, 4) == pytest.approx(2)
    assert stepping_s(loop, 9, 12) == pytest.approx(3)


def test_a_loop_does_not_step_after_the_last_sample(tmp_path: Path) -> None:
    """An interpreter that ends has no frames, and may take seconds."""
    loop = loop_of(tmp_path / "r", [(STEP, 10)], 2, 8)
    assert stepping_s(loop, 8, 12) == pytest.approx(2)


def test_part_of_a_stay_counts_where_a_range_begins_or_ends_in_it(tmp_path: Path) -> None:
    loop = loop_of(tmp_path / "r", [(STEP, 10)], 2, 8)
    assert stepping_s(loop, 2.5, 3.25) == pytest.approx(0.75)


@pytest.mark.parametrize("source", ["cycles of backward", SOURCE.replace("in train", "in fit")])
def test_all_but_what_is_aside_is_stepping_where_the_lines_are_not_known(tmp_path: Path, source: str) -> None:
    loop = loop_of(tmp_path / "r", [(STEP, 5), (EVALUATE, 3), (AFTER, 2)], 1, 4, source=source)
    assert stepping_s(loop, 4, 10) == pytest.approx(3)


def test_all_of_a_range_without_samples_is_stepping(tmp_path: Path) -> None:
    loop = loop_of(tmp_path / "r", [(STEP, 5)], 1, 4)
    assert stepping_s(loop, 20, 30) == pytest.approx(10)
