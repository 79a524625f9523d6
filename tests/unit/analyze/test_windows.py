"""The lines for which the GPUs of a window waited, and what the window cost: against a sweep and
counts by hand.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from support.cudatraces import PID, CudaScript
from support.synthetic import MAIN, STARTED_NS, main_process, steps_counted, write_records

from profd.daemon.analyze.operators import WindowSummary, last_window
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.windows import AboutWindow, IdleGpu, StepTimes
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.render.operators import about_lines
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    Frame,
    Interval,
    OperatorTotals,
    WindowGpu,
    WindowStep,
    WindowTaken,
)
from profd.daemon.windows.reduction import reduce

LINES = tuple(Frame("train", "/home/ada/cifar/train.py", line) for line in (30, 31, 32))
SAMPLE_US = 20
Samples = list[tuple[int, int, int]]
"""Stays of a thread: the line that it stood in, from when, in how many samples; microseconds."""


def recording(threads: dict[int, Samples]) -> records.RecordingTaken:
    stacks = tuple((line,) for line in LINES)
    timelines = tuple(
        records.ThreadTimeline(
            tid,
            "MainThread" if tid == PID else "Thread-1",
            tid == PID,
            tuple(
                Interval(STARTED_NS + 1000 * at, 1000 * SAMPLE_US * n, line, n)
                for line, at, n in samples
            ),
        )
        for tid, samples in threads.items()
    )
    return records.RecordingTaken(
        MAIN, STARTED_NS, STARTED_NS + SECOND_NS, 25_000, 100, 0, 0, 0, 0, stacks, timelines
    )


def idle(path: Path, script: CudaScript, threads: dict[int, Samples]) -> tuple[IdleGpu, ...]:
    trace = msgspec.json.encode({"baseTimeNanoseconds": STARTED_NS, "traceEvents": script.events})
    found = msgspec.structs.asdict(reduce(io.BytesIO(trace), begins_with_step=True))
    return written(
        path, WindowTaken(MAIN, STARTED_NS, "kineto", STARTED_NS, **found), recording(threads)
    ).gpus


def written(path: Path, *rows: records.Record) -> WindowSummary:
    write_records(path, [main_process(), *rows])
    with RunReader(path) as reader:
        (window,) = last_window(reader, Selection())
        return window


def by_line(gpu: IdleGpu) -> dict[int, int]:
    """Return the samples of each line, after a look at what they make of the time."""
    assert all(line.idle_ns == gpu.host_ns * line.samples // gpu.samples for line in gpu.lines)
    assert sum(line.samples for line in gpu.lines) == gpu.samples
    return {line.line: line.samples for line in gpu.lines}


def test_time_that_a_gpu_waited_belongs_to_the_line_that_the_launching_thread_was_in(
    tmp_path: Path,
) -> None:
    script = CudaScript().launch("a", 0, 5, (10, 90)).launch("b", 495, 5, (510, 100), op=3)
    script.host("aten::mm", 490, 20, 3)
    # A sample falls on the beginning of the gap at 100 us, and one on its end at 500, which is
    # behind it.
    (gpu,) = idle(tmp_path / "a.profd", script, {PID: [(0, 60, 5), (1, 160, 7), (2, 500, 2)]})
    assert (gpu.busy_ns, gpu.idle_ns, gpu.host_ns) == (190_000, 410_000, 400_000)
    assert by_line(gpu) == {31: 7, 30: 3}
    line = gpu.lines[0]
    assert (line.label, line.function, line.idle_ns) == ("train.py:31", "train", 280_000)
    (text,) = about_lines(
        AboutWindow(gpus=(gpu,), step_times=StepTimes(None, None, None, is_slower=False), notes=())
    )
    assert (
        "67 % as nothing was launched (of 10 samples 7 in train.py:31 train, 3 in train.py:30 "
        "train), 2 % by" in text
    )


def test_threads_without_python_do_what_the_main_thread_waits_for(tmp_path: Path) -> None:
    script = CudaScript().launch("a", 0, 5, (10, 90)).launch("b", 495, 5, (510, 100), tid=-99)
    (gpu,) = idle(tmp_path / "a.profd", script, {PID: [(2, 0, 20)], PID + 1: [(1, 0, 20)]})
    assert by_line(gpu) == {32: 15}


def test_time_without_samples_has_no_line(tmp_path: Path) -> None:
    script = CudaScript().launch("a", 0, 5, (10, 90)).launch("b", 995, 5, (1000, 100))
    (gpu,) = idle(tmp_path / "a.profd", script, {PID: [(0, 20, 2), (1, 1010, 5)]})
    assert (gpu.host_ns, gpu.samples, gpu.lines) == (900_000, 0, ())


def truth(script: CudaScript, gpu: int, threads: dict[int, Samples]) -> Counter[int]:
    """Return the samples by line that fell into a microsecond in which a GPU waited for their
    thread.
    """
    moments = {
        tid: {at + place * SAMPLE_US: line for line, at, n in samples for place in range(n)}
        for tid, samples in threads.items()
    }
    found: Counter[int] = Counter()
    for at, _, tid in script.sweep(gpu):
        sampled = moments.get(tid, moments[PID]) if tid is not None else {}
        if at in sampled:
            found[30 + sampled[at]] += 1
    return found


@pytest.mark.parametrize("seed", range(25))
def test_idle_time_by_line_is_what_a_sweep_of_each_microsecond_finds(
    tmp_path: Path, seed: int
) -> None:
    chance, script, at = random.Random(seed), CudaScript(), 0
    for number in range(40):
        at += chance.randrange(0, 60)
        took = chance.randrange(1, 40)
        start = at + chance.randrange(1, took + 30)
        gpu, stream, tid = (
            chance.randrange(2),
            chance.choice((7, 20)),
            chance.choice((PID, PID + 1, -5)),
        )
        script.launch(
            f"k{number}",
            at,
            took,
            (start, chance.randrange(0, 40)),
            gpu=gpu,
            stream=stream,
            tid=tid,
        )
    threads: dict[int, Samples] = {}
    for tid in (PID, PID + 1):
        stays, place_us = [], -400
        while place_us < at + 400:
            stays.append((chance.randrange(3), place_us, chance.randrange(1, 6)))
            place_us += SAMPLE_US * stays[-1][2]
        threads[tid] = stays
    gpus = idle(tmp_path / "a.profd", script, threads)
    assert len(gpus) == 2
    for one in gpus:
        assert by_line(one) == truth(script, one.gpu, threads)


WINDOW_NS, STEP_NS = STARTED_NS + 60 * SECOND_NS, 150 * MILLISECOND_NS


def cost(
    path: Path,
    before_ms: int,
    after_ms: int,
    *rows: OperatorTotals,
    until_s: int = 60,
    pause: range = range(0),
    gpus: tuple[WindowGpu, ...] = (),
) -> WindowSummary:
    """Return a window of two steps of 150 ms, in a run with steps of these lengths before and after
    it.
    """
    found: list[records.Record] = []
    count = 0.0
    for second in range(1, 60):
        count += 1000 / before_ms
        found.append(steps_counted(second, count))
    starts = (WINDOW_NS, WINDOW_NS + STEP_NS)
    steps, end_ns = (
        tuple(WindowStep(start_ns, start_ns + STEP_NS) for start_ns in starts),
        WINDOW_NS + 2 * STEP_NS,
    )
    asked_ns = WINDOW_NS - SECOND_NS
    found.append(
        WindowTaken(
            MAIN, end_ns, "kineto", asked_ns, "", WINDOW_NS, end_ns, steps, gpus, operators=rows
        )
    )
    # For three seconds the process writes its trace, and makes no step.
    found.append(
        records.EventHappened(
            end_ns + 3 * SECOND_NS, EventKind.WINDOW, "window of process 4242", MAIN
        )
    )
    for second in range(1, 4 + until_s):
        found.append(steps_counted(second, count, started_ns=end_ns))
        count += 1000 / after_ms if second >= 3 and second not in pause else 0
    return written(path, *found)


def operator(name: str, calls: int = 1, cuda_us: int = 0, device: str = "cpu") -> OperatorTotals:
    return OperatorTotals(
        name, device, False, "[]", calls, 0, 0, 1000 * cuda_us, 1000 * cuda_us, 0, 0, 0, 0
    )


def test_a_step_before_in_and_after_a_window_without_the_time_that_its_trace_takes(
    tmp_path: Path,
) -> None:
    window = cost(tmp_path / "a.profd", 100, 104)
    times = window.step_times
    assert (times.before_s, times.within_s, times.after_s) == pytest.approx((0.1, 0.15, 0.104))
    assert not times.is_slower
    assert window.notes == ()
    assert list(about_lines(window)) == [
        "A step took 100 ms before the window, 150 ms in it, 104 ms after it."
    ]


def test_steps_that_stay_slower_are_noted_with_their_cause(tmp_path: Path) -> None:
    (note,) = cost(
        tmp_path / "a.profd", 100, 115, operator("sgemm", cuda_us=5, device="cuda")
    ).notes
    assert note.startswith(
        "Steps take 15 % longer since the window: torch leaves CUPTI attached; TEARDOWN_CUPTI=1"
    )
    assert cost(tmp_path / "b.profd", 100, 115).notes == (
        "Steps take 15 % longer since the window.",
    )
    few = cost(tmp_path / "c.profd", 100, 115, until_s=1)
    assert (few.step_times.after_s, few.notes) == (None, ())


def test_idle_time_that_the_profiler_made_is_taken_out_of_it(tmp_path: Path) -> None:
    # Of each step of 150 ms the GPU works for 60: so it does of the 100 ms that a step takes
    # without the profiler.
    gpus = (WindowGpu(0, 120 * MILLISECOND_NS, 180 * MILLISECOND_NS, 0, 0),)
    (note,) = cost(tmp_path / "a.profd", 100, 100, gpus=gpus).notes
    said = (
        "The profiler made steps 50 % longer. Without it GPUs are idle for less of the time: GPU "
        "0 about 40 %."
    )
    assert note == said
    assert cost(tmp_path / "b.profd", 140, 140, gpus=gpus).notes == ()


@pytest.mark.parametrize(
    ("utilization", "host_ms", "kernels", "shared"),
    [
        (0.85, 30, 1900, True),
        (0.2, 30, 1900, False),  # the driver saw no other work: kernels wait for something else
        (
            0.85,
            90,
            1900,
            False,
        ),  # the profiler made the host slow; readings are of the time around, too
        (0.85, 30, 6000, False),  # between so many kernels there is always some time
    ],
)
def test_another_process_on_the_gpu_is_noted_where_launched_work_waits(
    tmp_path: Path, utilization: float, host_ms: int, kernels: int, shared: bool
) -> None:
    busy = records.Point("gpu_utilization_share", utilization, device="gpu0")
    readings = [records.PointsTaken(STARTED_NS + n * SECOND_NS // 5, (busy,)) for n in range(3)]
    gpu = WindowGpu(0, 3 * MILLISECOND_NS, 97 * MILLISECOND_NS, 0, host_ms * MILLISECOND_NS)
    times, rows = (
        (STARTED_NS, STARTED_NS + 100 * MILLISECOND_NS),
        (operator("relu", kernels, 5, device="cuda"),),
    )
    taken = WindowTaken(
        MAIN, STARTED_NS, "kineto", STARTED_NS, "", *times, (), (gpu,), operators=rows
    )
    said = (
        "Another process used GPU 0: the driver saw it busy 85 % of the time, and the trace has "
        "work for 3 %."
    )
    notes = written(tmp_path / "a.profd", *readings, taken).notes
    assert [note.startswith(said) for note in notes] == [True] * shared


def test_an_evaluation_after_the_window_makes_no_step_slower(tmp_path: Path) -> None:
    window = cost(tmp_path / "a.profd", 100, 100, pause=range(20, 40))
    assert window.step_times.after_s == pytest.approx(0.1)
    assert window.notes == ()


def test_launches_without_a_kernel_say_that_another_profiler_has_the_gpu(tmp_path: Path) -> None:
    taken = WindowTaken(
        *(MAIN, STARTED_NS, "kineto", STARTED_NS, ""),
        STARTED_NS,
        STARTED_NS + SECOND_NS,
        operators=(operator("cudaLaunchKernel", 34),),
        streams=(records.WindowStream(0, 0, 130001, 34, 34, 0, 0, 0),),
    )
    (note,) = written(tmp_path / "a.profd", taken).notes
    assert note.startswith(
        "The trace has no work of a GPU, though the process made 34 launches: another profiler"
    )


@pytest.mark.parametrize(
    ("stream", "notes"),
    [
        (records.WindowStream(0, 7, 130001, 300, 0, 0, 20, 0), []),
        (
            records.WindowStream(0, 0, 130001, 34, 3, 3, 0, 0),
            [
                "The trace lacks the work of 3 of 34 launches: the GPU's times are at least these, "
                "and its idle times at most. What is missing are the first ones. CUPTI loses"
            ],
        ),
        *(
            (records.WindowStream(0, 0, cupti, 34, 3, first, 0, 0), [end])
            for cupti, first in ((130001, 2), (130100, 3), (18, 3), (0, 3))
            for end in [
                "The trace lacks the work of 3 of 34 launches: the GPU's times are at least"
            ]
        ),
        (
            records.WindowStream(
                0, 7, 130001, 34, 0, 0, 0, 50
            ),  # copies have no launch of a kernel
            [
                "The trace has 50 pieces of work with the times of another clock: the GPU's times are"
            ],
        ),
        (
            records.WindowStream(0, 7, 18, 34, 4, 0, 0, 1),
            [
                "The trace lacks the work of 4 of 34 launches and has 1 piece of work with the "
                "times of another clock: the GPU's"
            ],
        ),
    ],
)
def test_what_a_trace_lacks_is_said_with_its_reason_if_that_is_known(
    tmp_path: Path, stream: records.WindowStream, notes: list[str]
) -> None:
    taken = WindowTaken(
        *(MAIN, STARTED_NS, "kineto", STARTED_NS, ""),
        STARTED_NS,
        STARTED_NS + SECOND_NS,
        operators=(operator("sgemm", 30, 5, device="cuda"),),
        streams=(stream,),
    )
    found = written(tmp_path / "a.profd", taken).notes
    assert [note[: len(said)] for note, said in zip(found, notes, strict=True)] == notes
    assert ("CUPTI" in "".join(found)) == ("CUPTI" in "".join(notes))


def test_a_process_that_uses_a_gpu_without_a_launch_in_its_trace_says_so(tmp_path: Path) -> None:
    taken = WindowTaken(
        *(MAIN, STARTED_NS, "kineto", STARTED_NS, ""),
        STARTED_NS,
        STARTED_NS + SECOND_NS,
        operators=(operator("aten::mm"),),
    )
    memory = records.Point("gpu_process_memory_bytes", 2e9, MAIN, device="gpu0")
    (note,) = written(tmp_path / "a.profd", records.PointsTaken(STARTED_NS, (memory,)), taken).notes
    assert note.startswith(
        "The trace has no work of a GPU, though the process uses one: another profiler"
    )
    assert written(tmp_path / "b.profd", taken).notes == ()


def test_graphs_are_named_with_the_share_of_work_that_has_no_operator(tmp_path: Path) -> None:
    rows = (
        operator("cudaGraphLaunch", 5),
        operator("aten::mm", 9, 20),
        operator("sgemm", 30, 80, device="cuda"),
    )
    (note,) = cost(tmp_path / "a.profd", 100, 100, *rows).notes
    assert note.startswith(
        "5 CUDA graphs ran: kernels of a graph count for no operator that was captured, so 75 %"
    )
