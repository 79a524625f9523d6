"""Makes run files of two ranks with GPUs: each main thread waits for data for a second, then
computes for a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.records import Identity
from support.synthetic import BACKWARD, DATA_WAIT, MAIN, STARTED_NS, recording, write_records

SECONDS = 20
PERIOD_MS = 100
OTHER_RANK = Identity(5000, 2000)
Utilization = Callable[[int], float]


def waits(at_ms: int) -> float:
    """Utilization over the period that ends at a time: 0 in the second that each pair of seconds
    begins with.
    """
    return 0.0 if (at_ms - 1) % 2000 < 1000 else 0.9


def busy(_: int) -> float:
    return 0.8


def write_gpu_run(
    path: Path, devices: Mapping[str, Utilization], holders: Mapping[Identity, tuple[str, ...]]
) -> Path:
    """Write a run whose processes wait a second and compute a second, with GPUs and the holders of
    memory on them.
    """
    found: list[records.Record] = []
    for rank, identity in enumerate((MAIN, OTHER_RANK)):
        found.append(
            records.ProcessSeen(
                identity, None, ("python", "a.py"), "main", rank, None, "3.11.7", STARTED_NS
            )
        )
        spans = ((DATA_WAIT, 1000), (BACKWARD, 1000)) * (SECONDS // 2)
        thread = (identity.pid, "MainThread", True, spans)
        found.append(recording(identity, STARTED_NS, (thread,), duration_ns=SECONDS * SECOND_NS))
    for at_ms in range(0, SECONDS * 1000 + 1, PERIOD_MS):
        points = [
            records.Point("gpu_utilization_share", at(at_ms), device=name)
            for name, at in devices.items()
        ]
        points += [
            records.Point("gpu_process_memory_bytes", 1e9, identity, device=name)
            for identity, names in holders.items()
            for name in names
        ]
        found.append(records.PointsTaken(STARTED_NS + at_ms * MILLISECOND_NS, tuple(points)))
    found.append(records.RunEnded(STARTED_NS + SECONDS * SECOND_NS, "target-exited", 0))
    return write_records(path, found)
