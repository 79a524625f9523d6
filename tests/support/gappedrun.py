"""Makes a run whose series have distances of their own, and pauses."""

from __future__ import annotations

from pathlib import Path

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.records import DeviceSeen, Point, PointsTaken, Record, RunEnded
from profd.daemon.store.tables import Tables
from support.synthetic import MAIN, STARTED_NS, main_process, run_started
from support.training_stacks import describe

SECONDS = 900
DEVICE = "gpu0"
UTILIZATION = "gpu_utilization_share"
POWER = "gpu_power_watts"


def write_gapped_run(path: Path) -> Path:
    """Write a run of a quarter of an hour: of a GPU read six times a second, with pauses, and each
    five seconds.
    """
    busy_ms = [
        at_ms
        for at_ms in range(150, SECONDS * 1000, 150)
        if not 100_000 < at_ms < 140_000 and at_ms % 3_000
    ]
    records: list[Record] = [
        *(
            _taken(at_ms, Point(UTILIZATION, (at_ms // 450) % 5 / 4, device=DEVICE))
            for at_ms in busy_ms
        ),
        *(
            _taken(at_s * 1000, Point(POWER, 100.0 + at_s, device=DEVICE))
            for at_s in range(5, SECONDS, 5)
        ),
        *(
            _taken(
                at_s * 1000 + 70,
                Point("cpu_cores", at_s % 7 / 4, MAIN),
                Point("profd_cpu_cores", at_s % 5 / 100),
            )
            for at_s in range(SECONDS)
            if at_s % 100 < 90
        ),
    ]
    records.sort(key=lambda record: record.at_ns if isinstance(record, PointsTaken) else 0)
    tables = Tables(database.create(path), describe)
    tables.begin(run_started())
    tables.commit(
        [main_process(), DeviceSeen(STARTED_NS, DEVICE, 0, "NVIDIA A100", "GPU-1", 80 << 30)]
    )
    for at in range(0, len(records), 500):
        tables.commit(records[at : at + 500])
    tables.commit([RunEnded(STARTED_NS + SECONDS * SECOND_NS, "target-exited", 0, None)])
    tables.finish()
    tables.close()
    return path


def _taken(at_ms: int, *points: Point) -> PointsTaken:
    return PointsTaken(STARTED_NS + at_ms * MILLISECOND_NS, points)
