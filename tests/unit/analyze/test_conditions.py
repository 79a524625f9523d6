"""Conditions beside the GPU's: when all cores were busy, when memory grew, and runs that cannot
tell.
"""

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
from profd.daemon.analyze.memory import growth
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.timerange import EVER

GROWING = (Condition("memory-growing"),)


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


def test_growing_memory_selects_the_time_since_the_growth_began(tmp_path: Path) -> None:
    with RunReader(write_run(tmp_path / "a.profd", seconds=90)) as reader:
        leak = next(one for one in growth(reader) if one.verdict == "growing")
        assert leak.since_ns is not None
        profile = take_profile(reader, Selection(main_threads=True, when=GROWING))
        process = reader.processes[leak.process]
        assert process.pid == MAIN.pid
        assert profile.total_ns == reader.info.end_ns - max(leak.since_ns, STARTED_NS)
        worker = next(row for row in reader.processes.values() if row.role == "worker")
        assert (
            take_profile(reader, Selection(processes=frozenset({worker.id}), when=GROWING)).total_ns
            == 0
        )


def test_all_cores_are_busy_from_95_percent_on(tmp_path: Path) -> None:
    with RunReader(
        write_readings(tmp_path / "a.profd", "host_cpu_share", [0.1, 0.94, 0.95, 1.0, 0.5])
    ) as reader:
        cover = conditions.cpu_saturated(reader)
    assert list(cover.ranges()) == [(STARTED_NS + SECOND_NS, STARTED_NS + 3 * SECOND_NS)]


@pytest.mark.parametrize(
    ("name", "device", "readings"),
    [
        ("cgroup_cpu_throttled_share", None, [0.0, 0.0, 0.3, 0.0]),
        ("gpu_throttle_reasons_mask", "gpu0", [0, 0, 0x4, 0]),
    ],
)
def test_what_held_back_the_cpu_or_a_gpu_counts(
    name: str, device: str | None, readings: list[float], tmp_path: Path
) -> None:
    with RunReader(write_readings(tmp_path / "a.profd", name, readings, device)) as reader:
        cover = conditions.throttled(reader, 1)
    assert list(cover.ranges()) == [(STARTED_NS + SECOND_NS, STARTED_NS + 2 * SECOND_NS)]


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


@pytest.mark.parametrize("name", conditions.CONDITIONS)
def test_a_run_that_cannot_tell_says_why(name: str, tmp_path: Path) -> None:
    run = write_readings(tmp_path / "a.profd", "host_load_1min", [1.0, 1.0])
    with (
        RunReader(run) as reader,
        pytest.raises(UsageError, match=f"cannot tell {name}: it has no readings"),
    ):
        conditions.check(reader, (Condition(name),), EVER)
