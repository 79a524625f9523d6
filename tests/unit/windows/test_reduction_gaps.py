"""Gaps of GPUs in a trace: against answers by hand, and against a sweep of random traces and of
parts of real ones.
"""

from __future__ import annotations

import gzip
import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
from support.cudatraces import PID, CudaScript

from profd.daemon.store.records import COLLECTIVE, HostGap, WindowGpu, WindowWait
from profd.daemon.windows import reduction
from profd.daemon.windows.reduction import gpu_times, waits_of
from profd.daemon.windows.spans import Spans
from profd.daemon.windows.trace import TraceReader

DATA = Path(__file__).parents[2] / "data"


def times(script: CudaScript) -> tuple[list[WindowGpu], list[HostGap]]:
    gpus, found = gpu_times(script.spans())
    return list(gpus), list(found)


def test_a_gap_is_the_hosts_until_the_call_is_over_that_launched_what_comes_next() -> None:
    script = CudaScript().launch("a", 0, 5, (10, 10)).launch("b", 30, 6, (40, 10))
    assert times(script) == (
        [WindowGpu(0, 20_000, 20_000, 0, 16_000)],
        [HostGap(0, 20_000, 36_000, PID)],
    )
    script = CudaScript().launch("a", 0, 5, (10, 10)).launch("b", 6, 5, (40, 10))
    assert times(script) == ([WindowGpu(0, 20_000, 20_000, 0, 0)], [])
    script = CudaScript().launch("a", 0, 5, (10, 10)).launch("b", 30, 20, (35, 10))
    assert times(script)[1] == [HostGap(0, 20_000, 35_000, PID)]
    script = CudaScript().host("aten::mm", 0, 1000, 1).launch("a", 500, 5, (510, 10), op=1)
    assert times(script) == ([WindowGpu(0, 10_000, 0, 0, 0)], [])


def test_busy_is_counted_once_and_ranges_synchronizations_and_overhead_are_no_work() -> None:
    script = CudaScript().launch("a", 0, 1, (10, 20))
    for stream in (8, 9):
        script.launch("b", 1, 1, (20, 20), stream=stream, cat="gpu_memcpy")
    assert times(script)[0] == [WindowGpu(0, 30_000, 0, 20_000, 0)]
    script = (
        CudaScript().launch("a", 0, 1, (10, 20)).annotation("Optimizer.step#SGD.step", 0, 90, 3)
    )
    script.sync(0, 90).overhead(0, 90)
    assert times(script) == ([WindowGpu(0, 20_000, 0, 0, 0)], [])


def test_work_of_graphs_and_without_its_launch_was_launched_in_time() -> None:
    script = CudaScript().launch("a", 0, 1, (10, 20)).launch("b", 40, 1, (50, 20))
    script.events = [event for event in script.events if event["ts"] != 40]
    assert times(script) == ([WindowGpu(0, 40_000, 20_000, 0, 0)], [])
    script = CudaScript().launch("a", 0, 1, (10, 10))
    script.launch("b", 25, 5, (32, 8), (45, 10), call="cudaGraphLaunch")
    assert times(script) == (
        [WindowGpu(0, 28_000, 17_000, 0, 10_000)],
        [HostGap(0, 20_000, 30_000, PID)],
    )


def test_triton_launches_by_the_driver_and_a_thread_that_torch_does_not_know_has_no_id_of_the_system() -> (
    None
):
    script = (
        CudaScript()
        .launch("a", 0, 1, (10, 10))
        .launch("t", 25, 5, (32, 8), call="cuLaunchKernelEx", tid=-77)
    )
    assert times(script)[1] == [HostGap(0, 20_000, 30_000, 77)]


def test_of_too_many_gaps_the_longest_are_kept_and_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reduction, "KEPT_GAPS", 2)
    script = CudaScript().launch("a", 0, 1, (10, 10))
    for place, length in enumerate((3, 9, 5)):
        at = 100 * (place + 1)
        script.launch("b", at - 1, length + 1, (at + length, 100 - length))
    (gpu,), found = times(script)
    assert gpu.host_ns == gpu.idle_ns == 83_000 + 9_000 + 5_000
    assert [gap.start_ns for gap in found] == [20_000, 200_000]


def random_trace(chance: random.Random) -> CudaScript:
    """Return a trace of two GPUs with two streams each, whose calls come from two threads.

    All times are whole.
    """
    script, at = CudaScript(), 0
    for number in range(chance.randrange(1, 60)):
        at += chance.randrange(0, 30)
        took, late = chance.randrange(1, 12), chance.randrange(-3, 40)
        start = at + max(took + late, 1)
        work = (start, chance.randrange(0, 25))
        gpu, stream, tid = (
            chance.randrange(2),
            chance.choice((7, 20)),
            chance.choice((PID, PID + 1)),
        )
        script.launch(
            f"k{number}", at, took, work, op=chance.choice((0, 5)), gpu=gpu, stream=stream, tid=tid
        )
        if chance.random() < 0.1:
            script.annotation("range", start, 500, 9).sync(at, 300)
    return script


@pytest.mark.parametrize("seed", range(40))
def test_random_traces_have_the_times_that_a_sweep_of_each_microsecond_finds(seed: int) -> None:
    script = random_trace(random.Random(seed))
    for row in times(script)[0]:
        truth = list(script.sweep(row.gpu))
        assert row == WindowGpu(
            row.gpu,
            busy_ns=1000 * sum(running > 0 for _, running, _ in truth),
            idle_ns=1000 * sum(not running for _, running, _ in truth),
            overlap_ns=1000 * sum(running > 1 for _, running, _ in truth),
            host_ns=1000 * sum(tid is not None for _, _, tid in truth),
        )
        kept = [gap for gap in times(script)[1] if gap.gpu == row.gpu]
        assert sum(gap.end_ns - gap.start_ns for gap in kept) == row.host_ns


@pytest.mark.parametrize(
    ("name", "idle", "host"),
    [
        ("launch_bound", 0.971, 0.947),  # Python starts small kernels too slowly
        (
            "launch_bound_shared",
            0.962,
            0.151,
        ),  # the same beside another process, which has the GPU meanwhile
        ("imagenet", 0.216, 0.208),  # half of the kernels were launched before the window
    ],
)
def test_windows_of_a_real_gpu_have_the_idle_time_that_a_sweep_of_their_events_finds(
    name: str, idle: float, host: float
) -> None:
    text = gzip.decompress((DATA / f"h200_{name}.json.gz").read_bytes())
    (gpu,), _ = gpu_times(Spans(TraceReader([text])))
    events = [
        (round(1000 * one["ts"]), round(1000 * one["dur"]), one)
        for one in json.loads(text)["traceEvents"]
    ]
    over = {
        one["args"]["correlation"]: at + took
        for at, took, one in events
        if one["cat"].startswith("cuda")
    }
    work = sorted(
        (at, at + took, one["args"]["correlation"]) for at, took, one in events if one["pid"] == 0
    )
    moments = sorted(
        {at for start, end, launch in work for at in (start, end, over.get(launch, start))}
    )
    idle_ns = host_ns = 0
    for at, until in pairwise(
        moments[moments.index(work[0][0]) : moments.index(max(end for _, end, _ in work)) + 1]
    ):
        if not any(start <= at < end for start, end, _ in work):
            idle_ns += until - at
            host_ns += (
                until - at if over.get(next(one[2] for one in work if one[0] > at), 0) > at else 0
            )
    assert (gpu.idle_ns, gpu.host_ns) == (idle_ns, host_ns)
    whole = moments[moments.index(max(end for _, end, _ in work))] - work[0][0]
    assert (idle_ns / whole, host_ns / whole) == pytest.approx((idle, host), abs=0.001)


def test_calls_that_wait_and_collectives_beside_no_other_kernel_are_waits() -> None:
    script = CudaScript()
    for name, at in (
        ("cudaStreamSynchronize", 10),
        ("cudaMalloc", 20),
        ("cudaMallocAsync", 30),
        ("cudaEventQuery", 40),
    ):
        script.launch("", at, 5, call=name)
    script.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100, 2, (110, 40), stream=20)
    script.launch("gemm", 100, 2, (100, 20), (130, 5))
    script.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100, 2, (110, 40), gpu=1)
    assert sorted(waits_of(script.spans())) == [
        WindowWait(COLLECTIVE, 110_000, 150_000, 0),  # on the GPU that has nothing else
        WindowWait(COLLECTIVE, 120_000, 130_000, 0),
        WindowWait(COLLECTIVE, 135_000, 150_000, 0),
        WindowWait("cudaMalloc", 20_000, 25_000, PID),
        WindowWait("cudaStreamSynchronize", 10_000, 15_000, PID),
    ]


def test_a_collective_beside_a_long_kernel_is_no_wait_once_a_short_one_is_over() -> None:
    script = CudaScript()
    script.launch("ncclDevKernel_AllGather_RING_LL", 100, 2, (110, 90), stream=20)
    script.launch("gemm", 100, 2, (100, 80)).launch("add", 110, 2, (120, 5), stream=8)
    script.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100, 2, (150, 40), stream=21)
    assert [*waits_of(script.spans())] == [WindowWait(COLLECTIVE, 180_000, 200_000, 0)]
