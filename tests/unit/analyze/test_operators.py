"""The operators of the last window in a summary: which window, which operators, and by what they
are ranked.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, main_process, recording, write_records
from support.training_stacks import LIBRARY, STEP, TRAIN

from profd.daemon.analyze.operators import (
    IssuingLine,
    OperatorCall,
    Stay,
    issuing_lines,
    last_window,
    tie,
)
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.torchtraces import of_last_request
from profd.daemon.analyze.windows import Line
from profd.daemon.clock import MILLISECOND_NS as MS
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.summary import summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, OperatorTotals, Record, WindowStep, WindowTaken

FIRST_NS, SECOND_WINDOW_NS = STARTED_NS + SECOND_NS, STARTED_NS + 3 * SECOND_NS


def operator(
    name: str, shape: str, cpu_ms: int, cuda_ms: int = 0, device: str = "cpu", note: bool = False
) -> OperatorTotals:
    own = (cpu_ms * MS, 2 * cpu_ms * MS, cuda_ms * MS, cuda_ms * MS)
    return OperatorTotals(name, device, note, shape, 3, *own, 0, 0, 0, 0)


CONVOLUTION = (operator("aten::conv2d", "[8, 3]", 20), operator("aten::conv2d", "[8, 6]", 30))
ADD = operator("aten::add", "[8]", 40)
GPU_CONVOLUTION = (
    operator("aten::conv2d", "[8, 3]", 20, 5),
    operator("aten::conv2d", "[8, 6]", 30, 5),
)
GPU_ADD = operator("aten::add", "[8]", 40, 30)
NOTE = operator("Optimizer.step#SGD", "", 10, note=True)
KERNEL = operator("sgemm", "", 0, 40, device="cuda:0")


def taken(from_ns: int, *operators: OperatorTotals, error: str = "") -> WindowTaken:
    to_ns = from_ns + 200 * MS
    steps = (WindowStep(from_ns, from_ns + 100 * MS), WindowStep(from_ns + 100 * MS, to_ns))
    return WindowTaken(
        MAIN, to_ns, "kineto", from_ns, error, from_ns, to_ns, steps, operators=operators
    )


def write(path: Path, *windows: WindowTaken) -> Path:
    stacks = recording(MAIN, STARTED_NS, [(MAIN_TID, "MainThread", True, STEP * 8)])
    found: list[Record] = [main_process(), stacks, *windows]
    return write_records(path, found)


def test_the_last_window_is_summed_by_name_with_the_largest_first(tmp_path: Path) -> None:
    windows = (
        taken(FIRST_NS, operator("old", "", 9)),
        taken(SECOND_WINDOW_NS, ADD, *CONVOLUTION, NOTE),
        taken(SECOND_WINDOW_NS + SECOND_NS, error="the trace is damaged"),
    )
    with RunReader(write(tmp_path / "a.profd", *windows)) as reader:
        (window,) = last_window(reader, Selection())
        summary = summarize(reader)

    assert (window.start_ns, window.steps) == (SECOND_WINDOW_NS, 2)
    assert [(row.name, row.calls, row.self_cpu_ns) for row in window.operators] == [
        ("aten::conv2d", 6, 50 * MS),
        ("aten::add", 3, 40 * MS),
    ]
    assert {row.self_cuda_share for row in window.operators} == {None}
    assert summary.last_window == (window,)


def test_a_window_that_a_damaged_file_has_many_times_is_one(tmp_path: Path) -> None:
    with RunReader(write(tmp_path / "a.profd", *[taken(FIRST_NS, ADD)] * 3)) as reader:
        assert len(reader.windows()) == 3
        (window,) = last_window(reader, Selection())
        assert of_last_request(reader, reader.windows()) == reader.windows()[2:]
    assert window.start_ns == FIRST_NS


def test_on_a_gpu_the_time_of_the_gpu_ranks_them_and_kernels_are_not_counted_twice(
    tmp_path: Path,
) -> None:
    with RunReader(
        write(tmp_path / "a.profd", taken(FIRST_NS, *GPU_CONVOLUTION, GPU_ADD, NOTE, KERNEL))
    ) as reader:
        (window,) = last_window(reader, Selection())
        text = summary_text(summarize(reader))

    assert [(row.name, row.self_cuda_share, row.self_cpu_share) for row in window.operators] == [
        ("aten::add", 0.75, 0.4),
        ("aten::conv2d", 0.25, 0.5),
    ]
    lines = text.splitlines()
    place = lines.index("Operators of the last window")
    assert lines[place + 1 : place + 4] == [
        "  2 whole steps in 200 ms",
        "  self CUDA  self CPU  calls  operator",
        "       75 %      40 %      3  aten::add",
    ]


def test_a_range_has_its_own_last_window_or_none_and_a_run_without_says_nothing_of_operators(
    tmp_path: Path,
) -> None:
    windows = (
        taken(FIRST_NS, operator("first", "", 9)),
        taken(SECOND_WINDOW_NS, operator("second", "", 9)),
    )
    with RunReader(write(tmp_path / "a.profd", *windows)) as reader:
        (early,) = last_window(reader, Selection(to_ns=SECOND_WINDOW_NS))
        assert [row.name for row in early.operators] == ["first"]
        assert last_window(reader, Selection(from_ns=SECOND_WINDOW_NS + SECOND_NS)) == ()
    with RunReader(write(tmp_path / "b.profd")) as reader:
        summary = summarize(reader)
    assert summary.last_window == ()
    assert "Operators" not in summary_text(summary)


BACKWARD = Line("/home/u/train.py", "train.py", 61)
FORWARD = Line("/home/u/train.py", "train.py", 59)


def stay(line: Line | None, start_ms: int, end_ms: int, *moments_ms: int) -> Stay:
    return Stay(
        start_ms * MS, end_ms * MS, end_ms * MS, line, [moment * MS for moment in moments_ms]
    )


def call(name: str, start_ms: float, end_ms: float) -> OperatorCall:
    return OperatorCall(int(start_ms * MS), int(end_ms * MS), name)


@pytest.mark.parametrize(
    ("stays", "calls", "found"),
    [
        (
            [stay(FORWARD, 0, 55, 0, 20, 40), stay(BACKWARD, 55, 100, 65)],
            [call("outer", 0, 50), call("inner", 10, 30), call("after", 60, 90)],
            [("inner", 59), ("outer", 59), ("outer", 59), ("after", 61)],
        ),
        *(
            (
                [stay(BACKWARD, 10, 20, at_ms)],
                [call("mm", at_ms, at_ms + 0.1)],
                [("mm", 61)] if 12 <= at_ms <= 18 else [],
            )
            for at_ms in (10, 11, 12, 18, 19)
        ),
        ([stay(BACKWARD, 10, 11, 10)], [call("mm", 8, 12)], [("mm", 61)]),
        ([stay(BACKWARD, 10, 11, 10)], [call("mm", 8.1, 12)], []),
        (
            [stay(BACKWARD, 0, 100, 20, 35, 50)],
            [call("short", 0, 10), call("long", 5, 40), call("late", 30, 60)],
            [("long", 61), ("late", 61), ("long", 61), ("late", 61)],
        ),
        ([stay(None, 0, 100, 50)], [call("mm", 0, 100)], []),
    ],
    ids=[
        "operators in a sample have its line, and their callers",
        *(f"a short one {at_ms} ms from where the line changes" for at_ms in (0, 1, 2, -2, -1)),
        "a long one where the line was seen once",
        "one that is not long enough",
        "one that overlaps another thread's is not its caller",
        "code of libraries alone",
    ],
)
def test_operators_are_tied_to_the_line_of_the_samples_within_them(
    stays: list[Stay], calls: list[OperatorCall], found: list[tuple[str, int]]
) -> None:
    assert [(name, line.line) for name, line in tie(stays, calls, 2 * MS)] == found


STACKS = [
    (Frame("main", TRAIN, 61), Frame("backward", f"{LIBRARY}torch/_tensor.py", line))
    for line in (9, 10)
]


@pytest.mark.parametrize(
    ("tid", "kept"),
    [(MAIN_TID, True), (MAIN_TID + 77, True), (MAIN_TID, False)],
    ids=[
        "up to where the line may have changed",
        "a thread without Python",
        "a window without its trace",
    ],
)
def test_samples_of_the_main_thread_count_for_the_operators_of_a_window(
    tmp_path: Path, tid: int, kept: bool
) -> None:
    with RunReader(write_run(tmp_path / "a.profd", tid=tid, kept=kept)) as reader:
        (window,) = reader.windows()
        lines = issuing_lines(reader, window)
    assert lines == ({"aten::mm": (IssuingLine(TRAIN, "train.py", 61, 7),)} if kept else {})


def write_run(path: Path, *, tid: int, kept: bool = True) -> Path:
    """Write a run whose main thread stands in backward for 100 ms, with ten samples and an operator
    all the while.
    """
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": MAIN.pid,
        "tid": tid,
        "ts": 0,
        "dur": 100_000,
    }
    kernel = {**event, "cat": "kernel", "name": "gemm"}
    text = msgspec.json.encode({"baseTimeNanoseconds": STARTED_NS, "traceEvents": [event, kernel]})
    window = WindowTaken(
        MAIN, STARTED_NS, "kineto", STARTED_NS, start_ns=STARTED_NS, end_ns=STARTED_NS + 100 * MS,
        trace_bytes=len(text), trace=gzip.compress(text) if kept else None,
    )  # fmt: skip
    before = recording(MAIN, STARTED_NS - 10**9, [(MAIN_TID, "", True, [(STACKS[0], 10)])])
    taken = recording(
        MAIN, STARTED_NS, [(MAIN_TID, "MainThread", True, [(stack, 50) for stack in STACKS])]
    )
    return write_records(path, [main_process(), before, taken, window])
