"""The operators of the last window in a summary: which window, which operators, and by what they are ranked."""

from __future__ import annotations

from pathlib import Path

from support.synthetic import MAIN, MAIN_TID, STARTED_NS, main_process, recording, run_started
from support.training_stacks import STEP, describe

from profd.daemon.analyze.operators import last_window
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import MILLISECOND_NS as MS
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.summary import summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import OperatorTotals, Record, WindowStep, WindowTaken
from profd.daemon.store.writer import RunWriter

FIRST_NS, SECOND_WINDOW_NS = STARTED_NS + SECOND_NS, STARTED_NS + 3 * SECOND_NS


def operator(
    name: str, shape: str, cpu_ms: int, cuda_ms: int = 0, device: str = "cpu", note: bool = False
) -> OperatorTotals:
    own = (cpu_ms * MS, 2 * cpu_ms * MS, cuda_ms * MS, cuda_ms * MS)
    return OperatorTotals(name, device, note, shape, 3, *own, 0, 0, 0, 0, 0)


CONVOLUTION = (operator("aten::conv2d", "[8, 3]", 20), operator("aten::conv2d", "[8, 6]", 30))
ADD = operator("aten::add", "[8]", 40)
GPU_CONVOLUTION = (operator("aten::conv2d", "[8, 3]", 20, 5), operator("aten::conv2d", "[8, 6]", 30, 5))
GPU_ADD = operator("aten::add", "[8]", 40, 30)
NOTE = operator("Optimizer.step#SGD", "", 10, note=True)
KERNEL = operator("sgemm", "", 0, 40, device="cuda:0")


def taken(from_ns: int, *operators: OperatorTotals, error: str = "") -> WindowTaken:
    to_ns = from_ns + 200 * MS
    steps = (WindowStep(from_ns, from_ns + 100 * MS), WindowStep(from_ns + 100 * MS, to_ns))
    return WindowTaken(MAIN, to_ns, "kineto", from_ns, error, from_ns, to_ns, steps, None, operators)


def write(path: Path, *windows: WindowTaken) -> Path:
    writer = RunWriter(path, run_started(), describe)
    stacks = recording(MAIN, STARTED_NS, [(MAIN_TID, "MainThread", True, STEP * 8)])
    found: list[Record] = [main_process(), stacks, *windows]
    for record in found:
        assert writer.put(record), writer.failure
    writer.close()
    return path


def test_the_last_window_is_told_by_name_with_what_takes_most_first(tmp_path: Path) -> None:
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


def test_on_a_gpu_the_time_of_the_gpu_ranks_them_and_kernels_are_not_counted_twice(tmp_path: Path) -> None:
    with RunReader(write(tmp_path / "a.profd", taken(FIRST_NS, *GPU_CONVOLUTION, GPU_ADD, NOTE, KERNEL))) as reader:
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
        "  self CUDA  self CPU    calls  operator",
        "       75 %      40 %        3  aten::add",
    ]


def test_a_range_has_its_own_last_window_or_none(tmp_path: Path) -> None:
    windows = taken(FIRST_NS, operator("first", "", 9)), taken(SECOND_WINDOW_NS, operator("second", "", 9))
    with RunReader(write(tmp_path / "a.profd", *windows)) as reader:
        (early,) = last_window(reader, Selection(to_ns=SECOND_WINDOW_NS))
        late = last_window(reader, Selection(from_ns=SECOND_WINDOW_NS + SECOND_NS))

    assert [row.name for row in early.operators] == ["first"]
    assert late == ()


def test_a_run_without_windows_says_nothing_of_operators(tmp_path: Path) -> None:
    with RunReader(write(tmp_path / "a.profd")) as reader:
        summary = summarize(reader)

    assert summary.last_window == ()
    assert "Operators" not in summary_text(summary)
