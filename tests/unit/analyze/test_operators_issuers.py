"""Which lines issued the operators of a window: what samples say for certain, and what they leave open."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, main_process, recording, run_started
from support.training_stacks import LIBRARY, TRAIN, describe

from profd.daemon.analyze.operators import Call, IssuingLine, Line, Stay, issuing_lines, tie
from profd.daemon.clock import MILLISECOND_NS as MS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, WindowTaken
from profd.daemon.store.writer import RunWriter

BACKWARD = Line("/home/u/train.py", "train.py", 61)
FORWARD = Line("/home/u/train.py", "train.py", 59)


def tied(stays: list[Stay], calls: list[Call], error_ms: int = 2) -> list[tuple[str, int]]:
    return [(name, line.number) for name, line in tie(stays, calls, error_ms * MS)]


def stay(line: Line | None, start_ms: int, end_ms: int, *moments_ms: int) -> Stay:
    return Stay(start_ms * MS, end_ms * MS, end_ms * MS, line, [moment * MS for moment in moments_ms])


def call(name: str, start_ms: float, end_ms: float) -> Call:
    return Call(int(start_ms * MS), int(end_ms * MS), name)


def test_operators_that_run_in_a_sample_have_its_line_the_callers_too() -> None:
    calls = [call("outer", 0, 50), call("inner", 10, 30), call("after", 60, 90)]
    stays = [stay(FORWARD, 0, 55, 0, 20, 40), stay(BACKWARD, 55, 100, 65)]
    assert tied(stays, calls) == [("inner", 59), ("outer", 59), ("outer", 59), ("after", 61)]


@pytest.mark.parametrize(
    ("moment_ms", "found"),
    [(10, []), (11, []), (12, [("mm", 61)]), (18, [("mm", 61)]), (19, [])],
)
def test_short_operator_is_tied_only_far_enough_from_where_the_line_changes(
    moment_ms: int, found: list[tuple[str, int]]
) -> None:
    calls = [call("mm", moment_ms, moment_ms + 0.1)]
    assert tied([stay(BACKWARD, 10, 20, moment_ms)], calls) == found


def test_long_operator_is_tied_also_where_the_line_was_seen_once() -> None:
    assert tied([stay(BACKWARD, 10, 11, 10)], [call("mm", 8, 12)]) == [("mm", 61)]
    assert tied([stay(BACKWARD, 10, 11, 10)], [call("mm", 8.1, 12)]) == []


def test_operator_that_overlaps_another_thread_is_not_taken_for_its_caller() -> None:
    calls = [call("short", 0, 10), call("long", 5, 40), call("late", 30, 60)]
    assert tied([stay(BACKWARD, 0, 100, 20, 35, 50)], calls) == [("long", 61), ("late", 61), ("long", 61), ("late", 61)]


def test_code_of_libraries_alone_ties_nothing() -> None:
    assert tied([stay(None, 0, 100, 50)], [call("mm", 0, 100)]) == []


STACKS = [(Frame("main", TRAIN, 61), Frame("backward", f"{LIBRARY}torch/_tensor.py", line)) for line in (9, 10)]


def test_samples_count_up_to_where_the_line_may_have_changed_unseen(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.profd", tid=MAIN_TID)
    with RunReader(path) as reader:
        (window,) = reader.windows()
        lines = issuing_lines(reader, window)
    assert lines == {"aten::mm": (IssuingLine(TRAIN, "train.py", 61, 7),)}


def test_thread_without_python_works_for_the_main_thread(tmp_path: Path) -> None:
    with RunReader(write_run(tmp_path / "a.profd", tid=MAIN_TID + 77)) as reader:
        (window,) = reader.windows()
        assert issuing_lines(reader, window)["aten::mm"][0].samples == 7


def test_window_without_its_trace_has_no_lines(tmp_path: Path) -> None:
    with RunReader(write_run(tmp_path / "a.profd", tid=MAIN_TID, kept=False)) as reader:
        (window,) = reader.windows()
        assert issuing_lines(reader, window) == {}


def write_run(path: Path, *, tid: int, kept: bool = True) -> Path:
    """Write a run whose main thread stands in backward for 100 ms, with ten samples and an operator all the while."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": MAIN.pid, "tid": tid, "ts": 0, "dur": 100_000}
    kernel = {**event, "cat": "kernel", "name": "gemm"}
    text = msgspec.json.encode({"baseTimeNanoseconds": STARTED_NS, "traceEvents": [event, kernel]})
    window = WindowTaken(
        MAIN, STARTED_NS, "kineto", STARTED_NS, start_ns=STARTED_NS, end_ns=STARTED_NS + 100 * MS,
        trace_bytes=len(text), trace=gzip.compress(text) if kept else None,
    )  # fmt: skip
    writer = RunWriter(path, run_started(), describe)
    writer.put(main_process())
    writer.put(recording(MAIN, STARTED_NS - 10**9, [(MAIN_TID, "", True, [(STACKS[0], 10)])]))
    writer.put(recording(MAIN, STARTED_NS, [(MAIN_TID, "MainThread", True, [(stack, 50) for stack in STACKS])]))
    writer.put(window)
    writer.close()
    return path
