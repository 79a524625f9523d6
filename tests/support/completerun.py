"""A run in which every view of the dashboard has something to show, the same to the byte on every
machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store.records import (
    DeviceSeen,
    EventHappened,
    OperatorTotals,
    OutputWritten,
    Point,
    PointsTaken,
    Record,
    WindowGpu,
    WindowStep,
    WindowTaken,
)
from support import synthetic
from support.synthetic import MAIN, STARTED_NS

SECONDS = 72
GPU = "gpu0"
WINDOW_NS = STARTED_NS + 40 * SECOND_NS
STEPS = 5
STEP_NS = 500 * MILLISECOND_NS

OPERATORS = (
    ("Optimizer.step#Adam.step", 5, 6_100, 81_250, 0, 0),
    ("aten::convolution_backward", 100, 214_310, 321_040, 0, 402_770),
    ("aten::conv2d", 100, 1_200, 148_020, 0, 198_240),
    ("aten::cudnn_convolution", 100, 96_400, 140_500, 198_240, 198_240),
    ("aten::native_batch_norm", 100, 41_730, 52_960, 61_020, 61_020),
    ("aten::add_", 310, 22_840, 22_840, 18_660, 18_660),
    ("aten::addcdiv_", 310, 19_010, 19_010, 24_110, 24_110),
    ("aten::copy_", 15, 9_870, 9_870, 38_400, 38_400),
    ("aten::_local_scalar_dense", 5, 8_120, 8_120, 10, 10),
    ("aten::relu_", 85, 4_010, 7_480, 12_330, 12_330),
)
"""Name, calls, and microseconds: self CPU, CPU total, self CUDA, CUDA total."""


def write_complete_run(path: Path) -> Path:
    """Write the run and return its path."""
    return synthetic.write_run(
        path, seconds=SECONDS, also=[*_gpu(), *_steps(), *_events(), _window(), _output()]
    )


def _gpu() -> Iterator[Record]:
    yield DeviceSeen(STARTED_NS, GPU, 0, "NVIDIA H100 80GB HBM3", "GPU-0", 80 << 30)
    for at_ms in range(0, SECONDS * 1000 + 1, 250):
        share = 0.45 + 0.35 * math.sin(at_ms / 4000)
        values = {
            "gpu_utilization_share": round(share, 3),
            "gpu_memory_used_bytes": 12e9 + 2e9 * (at_ms >= 36_000),
            "gpu_power_watts": round(180 + 250 * share),
        }
        points = tuple(Point(name, value, device=GPU) for name, value in values.items())
        yield PointsTaken(STARTED_NS + at_ms * MILLISECOND_NS, points)


def _steps() -> Iterator[Record]:
    for second in range(1, SECONDS + 1):
        points = (
            Point("step_count", float(second * SECOND_NS // STEP_NS), MAIN),
            Point("step_count_error", 0.5, MAIN),
        )
        yield PointsTaken(STARTED_NS + second * SECOND_NS, points)


def _events() -> Iterator[Record]:
    said = (
        (12, "mark", "learning rate halved"),
        (43, "window", "5 whole steps of pid 4242 in 2.5 s, 10 operators"),
        (
            54,
            "rate",
            "sampling at 50 Hz instead of 100 Hz: 10.4 % of a core is over the budget of 10 %",
        ),
        (60, "error", "pid 4244 could not be read: Permission denied"),
        (66, "mark", "名前の長い印: naïve café"),
    )
    for second, kind, text in said:
        yield EventHappened(STARTED_NS + second * SECOND_NS, EventKind(kind), text)


def _window() -> Record:
    steps = tuple(
        WindowStep(WINDOW_NS + n * STEP_NS, WINDOW_NS + (n + 1) * STEP_NS) for n in range(STEPS)
    )
    at_ns, asked_ns = WINDOW_NS + 3 * SECOND_NS, WINDOW_NS - SECOND_NS
    gpu = WindowGpu(0, 980 * MILLISECOND_NS, 1520 * MILLISECOND_NS, 0, 1200 * MILLISECOND_NS)
    operators = tuple(_operator(*row) for row in OPERATORS)
    end_ns = steps[-1].end_ns
    return WindowTaken(
        MAIN, at_ns, "kineto", asked_ns, "", WINDOW_NS, end_ns, steps, (gpu,), operators=operators
    )


def _operator(name: str, calls: int, *times_us: int) -> OperatorTotals:
    is_annotation = "#" in name
    shapes = "[]" if is_annotation else "[[32, 64, 8, 8]]"
    self_cpu, cpu, self_cuda, cuda = (time_us * MICROSECOND_NS for time_us in times_us)
    times_ns = (self_cpu, cpu, self_cuda, cuda)
    return OperatorTotals(name, "cpu", is_annotation, shapes, calls, *times_ns, 0, 0, 0, 0)


def _output() -> Record:
    colored = (
        b"\r\n\x1b[1mepoch 1\x1b[0m \x1b[32mloss 1.412\x1b[0m\r\nsaved to \x1b[4mlast.pt\x1b[0m"
    )
    return OutputWritten(STARTED_NS + (SECONDS - 1) * SECOND_NS, colored)
