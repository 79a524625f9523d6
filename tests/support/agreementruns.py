"""Runs for which all parts of the product have to show the same numbers: recordings of real
programs, and made ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import records
from support import completerun, gappedrun, gpurun, rankrun, synthetic, unevensamples
from support.recordings import replay
from support.synthetic import (
    MAIN,
    MAIN_TID,
    STARTED_NS,
    STEP,
    main_process,
    recording,
    write_records,
)

MINUTES_OF_A_DAY = 24 * 60


def write_killed_run(path: Path) -> None:
    """Write a run whose recorder was killed after twenty seconds: it has no end."""
    _write(path, [_minute(0, 20)])


def write_day(path: Path) -> None:
    """Write a run of a day: too long for any part of the product to read it sample by sample."""
    end = records.RunEnded(STARTED_NS + MINUTES_OF_A_DAY * 60 * SECOND_NS, "target-exited", 0)
    _write(path, [*(_minute(minute, 60) for minute in range(MINUTES_OF_A_DAY)), [end]])


def _minute(minute: int, seconds: int) -> list[records.Record]:
    start_ns = STARTED_NS + minute * 60 * SECOND_NS
    end_ns = start_ns + seconds * SECOND_NS
    spans = [(stack, 2 * seconds * length_ms) for stack, length_ms in STEP]
    thread = (MAIN_TID, "MainThread", True, spans)
    points = (
        records.Point("cpu_cores", 0.5 + minute % 7 / 20, MAIN),
        records.Point("rss_bytes", 2e9 + 1e6 * (minute % 50), MAIN),
        records.Point("profd_cpu_cores", 0.02 + minute % 3 / 100),
        records.Point("gpu_utilization_share", minute % 10 / 10, device="gpu0"),
    )
    return [
        recording(MAIN, start_ns, (thread,), duration_ns=seconds * SECOND_NS, torn=minute % 4),
        records.PointsTaken(end_ns, points),
    ]


def _write(path: Path, parts: list[list[records.Record]]) -> None:
    found: list[records.Record] = [
        main_process(),
        records.DeviceSeen(STARTED_NS, "gpu0", 0, "NVIDIA A100", "GPU-1", 80 << 30),
    ]
    write_records(path, [*found, *(record for part in parts for record in part)])


RUNS: dict[str, Callable[[Path], object]] = {
    "all views": completerun.write_complete_run,
    "two ranks with a window": rankrun.write_run,
    "two GPUs": partial(
        gpurun.write_gpu_run, devices={"gpu0": gpurun.waits, "gpu1": gpurun.busy}, holders={}
    ),
    "pauses of readings": gappedrun.write_gapped_run,
    "changing rates": unevensamples.write_run,
    "killed recorder": write_killed_run,
    "a day": write_day,
    "killed target": partial(synthetic.write_run, exit_code=None, exit_signal=9),
    **{name: partial(replay, name) for name in ("ranks-slow-data", "steps-tqdm")},
}
"""How each is written."""
