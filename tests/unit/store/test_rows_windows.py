"""Windows in a run file: what is put in comes out, taken or not, with and without a trace."""

from __future__ import annotations

from pathlib import Path

from support.synthetic import MAIN, STARTED_NS, main_process, run_started, write_records
from support.training_stacks import describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import HostGap, OperatorTotals, Record, WindowGpu, WindowStep, WindowTaken, WindowWait
from profd.daemon.store.rows import WindowRow
from profd.daemon.store.writer import RunWriter

ADD = OperatorTotals("aten::add", "cpu", False, "[[2, 3], []]", 4, 10, 20, 30, 40, -1, -2, 5, 6, 24)
STEP = OperatorTotals("ProfilerStep*", "cpu", True, "[]", 1, 1, 2, 0, 0, 0, 0, 0, 0, 0)
TAKEN = WindowTaken(
    MAIN,
    at_ns=STARTED_NS + 9,
    source="kineto",
    asked_ns=STARTED_NS + 1,
    start_ns=STARTED_NS + 2,
    end_ns=STARTED_NS + 8,
    steps=(WindowStep(STARTED_NS + 2, STARTED_NS + 4), WindowStep(STARTED_NS + 4, STARTED_NS + 7)),
    gpus=(WindowGpu(0, busy_ns=3, idle_ns=2, overlap_ns=1, host_ns=2), WindowGpu(3, 1, 0, 0, 0)),
    gaps=(HostGap(0, STARTED_NS + 3, STARTED_NS + 5, 4242),),
    waits=(WindowWait("cudaMalloc", STARTED_NS + 3, STARTED_NS + 4, 4242),),
    operators=(ADD, STEP),
    trace_bytes=1000,
    trace=b"packed",
)
FAILED = WindowTaken(MAIN, at_ns=STARTED_NS + SECOND_NS, source="kineto", asked_ns=STARTED_NS + 99, error="it ended")


def write(path: Path, *records: Record) -> RunReader:
    return RunReader(write_records(path, [main_process(), *records]))


def test_window_comes_out_as_it_was_taken(tmp_path: Path) -> None:
    with write(tmp_path / "run.profd", TAKEN) as reader:
        (process,) = reader.processes
        taken = WindowRow(1, process, "kineto", TAKEN.asked_ns, "", TAKEN.start_ns, TAKEN.end_ns, 4, 2, 1, 1000, 6)
        assert reader.windows() == [taken]
        assert reader.window_steps(1) == list(TAKEN.steps)
        assert reader.operators(1) == list(TAKEN.operators)
        assert reader.operators(1)[1].is_annotation is True
        assert reader.window_gpus(1) == list(TAKEN.gpus)
        assert reader.host_gaps(1) == list(TAKEN.gaps)
        assert reader.window_waits(1) == list(TAKEN.waits)
        assert reader.window_trace(1) == b"packed"


def test_windows_are_found_by_when_they_were_asked_for_and_one_that_failed_says_why(tmp_path: Path) -> None:
    with write(tmp_path / "run.profd", TAKEN, FAILED) as reader:
        assert [window.id for window in reader.windows()] == [1, 2]
        (window,) = reader.windows(FAILED.asked_ns)
        assert (window.error, window.kept_bytes, window.device_busy_ns) == ("it ended", None, None)
        assert (reader.operators(window.id), reader.window_steps(window.id)) == ([], [])
        assert reader.window_trace(window.id) is None


def test_window_of_a_process_not_yet_seen_is_kept(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run.profd", run_started(), describe)
    writer.put(TAKEN)
    writer.put(main_process())
    writer.close()
    with RunReader(tmp_path / "run.profd") as reader:
        (window,) = reader.windows()
        assert reader.processes[window.process].role == "main"
