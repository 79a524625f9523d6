"""Conditions of selections: when threads ran on a CPU, and runs that cannot tell."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.synthetic import (
    MAIN,
    STARTED_NS,
    main_process,
    write_records,
    write_run,
)

from profd.daemon.analyze import conditions
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.stepfunction import StepFunction
from profd.daemon.timerange import EVER, TimeRange


def write_readings(path: Path, name: str, values: list[float], device: str | None = None) -> Path:
    """Write a run with one series of the host, or of a GPU that its process uses, read each second."""
    found: list[records.Record] = [main_process()]
    if device is not None:
        found.append(records.DeviceSeen(STARTED_NS, device, 0, "GPU", "GPU-0", 80 << 30))
    for second, value in enumerate(values):
        points = [records.Point(name, value, device=device)]
        if device is not None:
            points.append(records.Point("gpu_process_memory_bytes", 1 << 30, MAIN, device=device))
        found.append(records.PointsTaken(STARTED_NS + second * SECOND_NS, tuple(points)))
    return write_records(path, found)


def test_each_thread_is_on_the_cpu_by_its_own_readings(tmp_path: Path) -> None:
    with RunReader(
        write_run(tmp_path / "a.profd", seconds=10)
    ) as reader:  # CPU is read of main threads alone
        main = Selection(main_threads=True)
        on_cpu = msgspec.structs.replace(main, when=(Condition("on-cpu"),))
        conditions.check(reader, on_cpu.when, EVER)
        assert take_profile(reader, on_cpu).total_ns == 10 * SECOND_NS
        pin = Selection(thread="Thread-1 (_pin_memory_loop)", when=on_cpu.when)
        assert take_profile(reader, pin).total_ns == 0


@pytest.mark.parametrize("seconds", [59, 61])
def test_the_distance_of_readings_is_asked_of_short_ranges_alone(
    seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()

    def steps(self: RunReader, series: int, time: TimeRange = EVER) -> StepFunction:
        asked.append(series)
        return real(self, series, time)

    real = RunReader.steps
    monkeypatch.setattr(RunReader, "steps", steps)
    with RunReader(write_run(tmp_path / "a.profd", seconds=seconds)) as reader:
        conditions.check(reader, (Condition("on-cpu"),), EVER)
    assert bool(asked) == (seconds < 60)


@pytest.mark.parametrize("name", conditions.CONDITIONS)
def test_a_run_that_cannot_tell_says_why(name: str, tmp_path: Path) -> None:
    run = write_readings(tmp_path / "a.profd", "host_load_1min", [1.0, 1.0])
    with (
        RunReader(run) as reader,
        pytest.raises(UsageError, match=f"cannot tell {name}: it has no readings"),
    ):
        conditions.check(reader, (Condition(name),), EVER)
