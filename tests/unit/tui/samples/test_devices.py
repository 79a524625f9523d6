"""How busy the GPUs were in what is looked at: by the sums of a long range, by parts of one without."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.gpurun import waits, write_gpu_run
from support.synthetic import MAIN, STARTED_NS

from profd.daemon.analyze.gpu.busy import utilization_by_stack
from profd.daemon.analyze.gpu.usage import GpuTracks
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.store.reader import RunReader
from profd.tui.samples.devices import Devices
from profd.tui.view import Range


def test_the_idle_gpu_of_minutes_is_told_by_the_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.gpurun.SECONDS", 360)
    with RunReader(write_gpu_run(tmp_path / "a.profd", {"0": waits}, {MAIN: ("0",)})) as reader:
        asked = Range(STARTED_NS, reader.info.end_ns)
        found = Devices(reader).busy(asked, MAIN_THREADS.threads(reader))
        assert len(found) > 1
        # What takes the sums into account by itself is made to go without them.
        monkeypatch.setattr(reader.sums, "processes", dict)
        truth = utilization_by_stack(reader, GpuTracks(reader, None, None), MAIN_THREADS)

    assert found.keys() == truth.keys()
    for stack, busy in found.items():
        assert busy.utilization == pytest.approx(truth[stack].utilization)
        assert busy.known_ns == pytest.approx(truth[stack].known_ns)
