"""Makes runs of known memory, GPU time and operators, beside steps as ``stepruns`` has them: a
minute each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.records import OperatorTotals
from support.stepruns import write_steps
from support.synthetic import MAIN, STARTED_NS, worker

SECONDS = 60
WINDOW_STEPS = 2


def write_run(
    path: Path,
    seed: int = 1,
    *,
    idle: float = 0.2,
    peak_bytes: float = 2e9,
    growth_bytes_per_s: float = 0.0,
    conv_ms: float = 3.0,
    windows: int = 6,
    workers: int = 1,
    worker_life_s: int = SECONDS,
    spike_bytes: float = 0.0,
) -> Path:
    """Write a run whose GPU is idle for a share of the time, and busy for 80 % else.

    All of it uneven by chance.

    Its main process has its peak for the second half, its convolution takes ``conv_ms`` of its own
    CPU time a step. ``spike_bytes`` is what a single reading finds more.
    """
    chance = random.Random(seed)
    beside = [
        *_devices(),
        *_workers(workers),
        *_readings(chance, idle, peak_bytes, growth_bytes_per_s, workers, worker_life_s),
        *(_spike(peak_bytes + spike_bytes) if spike_bytes else ()),
        *(_window(chance, number, conv_ms) for number in range(windows)),
    ]
    return write_steps(path, seed, beside=beside)


def _devices() -> Iterator[records.Record]:
    yield records.DeviceSeen(STARTED_NS, "gpu0", 0, "NVIDIA A100", "GPU-1", 80 << 30)


def _workers(count: int) -> Iterator[records.Record]:
    for ordinal in range(1, count + 1):
        command = ("python", "train.py")
        yield records.ProcessSeen(
            worker(ordinal), MAIN, command, "worker", None, ordinal, "3.11.7", STARTED_NS
        )


def _readings(
    chance: random.Random,
    idle: float,
    peak_bytes: float,
    growth_bytes_per_s: float,
    workers: int,
    worker_life_s: int,
) -> Iterator[records.Record]:
    for at_ms in range(0, SECONDS * 1000, 200):
        utilization = 0.0 if chance.random() < idle else 0.8
        rss = (
            peak_bytes * (0.8 + 0.2 * (at_ms >= SECONDS * 500))
            if not growth_bytes_per_s
            else peak_bytes
        )
        points = [
            records.Point("gpu_utilization_share", utilization, device="gpu0"),
            records.Point(
                "rss_bytes", rss + growth_bytes_per_s * at_ms / 1000 + 1e5 * chance.random(), MAIN
            ),
            records.Point("gpu_process_memory_bytes", 4e9, MAIN, device="gpu0"),
        ]
        if at_ms <= worker_life_s * 1000:
            points += [
                records.Point("rss_bytes", 5e8, worker(ordinal))
                for ordinal in range(1, workers + 1)
            ]
        yield records.PointsTaken(STARTED_NS + at_ms * MILLISECOND_NS, tuple(points))


def _spike(rss: float) -> Iterator[records.Record]:
    at_ns = STARTED_NS + SECONDS * SECOND_NS * 3 // 4 + MILLISECOND_NS
    yield records.PointsTaken(at_ns, (records.Point("rss_bytes", rss, MAIN),))


def _window(chance: random.Random, number: int, conv_ms: float) -> records.Record:
    from_ns = STARTED_NS + (10 + 5 * number) * SECOND_NS
    middle_ns, to_ns = from_ns + 200 * MILLISECOND_NS, from_ns + 400 * MILLISECOND_NS
    operators = (
        operator("aten::conv2d", conv_ms * chance.gauss(1, 0.02)),
        operator("aten::addmm", 2.0 * chance.gauss(1, 0.02)),
        OperatorTotals("ProfilerStep#7", "cpu", True, "[]", 1, 10**9, 10**9, 0, 0, 0, 0, 0, 0),
    )
    steps = (records.WindowStep(from_ns, middle_ns), records.WindowStep(middle_ns, to_ns))
    return records.WindowTaken(
        MAIN, to_ns, "kineto", from_ns, "", from_ns, to_ns, steps, operators=operators
    )  # fmt: skip


def operator(name: str, self_cpu_ms: float) -> OperatorTotals:
    """Return an operator with its own CPU time a step, over all steps of a window."""
    own_ns = round(self_cpu_ms * MILLISECOND_NS * WINDOW_STEPS)
    return OperatorTotals(name, "cpu", False, "[[8, 3]]", 4, own_ns, own_ns, 0, 0, 0, 0, 0, 0)
