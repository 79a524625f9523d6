"""The GPUs in the summary of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import STARTED_NS, run_started
from support.training_stacks import describe

from profd.daemon.analyze.gpu import Gpu
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import DeviceSeen, Point, PointsTaken
from profd.daemon.store.writer import RunWriter

GIB = 1 << 30


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write a run of four seconds: gpu0 was busy for the first half, and told nothing of its power."""
    path = tmp_path / "run.profd"
    writer = RunWriter(path, run_started(), describe)
    writer.put(DeviceSeen(STARTED_NS, "gpu0", 0, "NVIDIA H100", "GPU-a", 80 * GIB))
    writer.put(DeviceSeen(STARTED_NS, "gpu1", 1, "NVIDIA A100", "GPU-b"))
    for second in range(5):
        points = (
            Point("gpu_utilization_share", 1.0 if second <= 2 else 0.0, device="gpu0"),
            Point("gpu_memory_used_bytes", float((second + 1) * GIB), device="gpu0"),
        )
        writer.put(PointsTaken(STARTED_NS + second * SECOND_NS, points))
    writer.close()
    return path


def test_gpus_are_told_with_what_they_did(run: Path) -> None:
    with RunReader(run) as reader:
        assert summarize(reader).gpus == (
            Gpu(0, "NVIDIA H100", "gpu0", "GPU-a", 80 * GIB, 0.5, 5 * GIB, None),
            Gpu(1, "NVIDIA A100", "gpu1", "GPU-b", None, None, None, None),
        )


def test_a_range_of_time_has_its_own_numbers(run: Path) -> None:
    with RunReader(run) as reader:
        gpu = summarize(reader, Selection(to_ns=STARTED_NS + 2 * SECOND_NS)).gpus[0]
    # What is read at the end of the range held since the reading before.
    assert (gpu.utilization, gpu.memory_used_bytes) == (1.0, 3 * GIB)


def test_run_without_a_gpu_has_none(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run.profd", run_started(), describe).close()
    with RunReader(tmp_path / "run.profd") as reader:
        assert summarize(reader).gpus == ()
