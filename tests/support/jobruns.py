"""Makes run files of jobs of several ranks: each makes the same step, and waits in backward for the
slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.records import Frame, Identity
from support.synthetic import COMMAND, STARTED_NS, recording, write_records
from support.training_stacks import BACKWARD, CONV, DATA, LIBRARY, TRAIN

STEP_MS = 500
LOAD = (
    Frame("<module>", TRAIN, 96),
    Frame("main", TRAIN, 90),
    Frame("train_epoch", TRAIN, 58),
    Frame("_MapDatasetFetcher.fetch", LIBRARY + "torch/utils/data/_utils/fetch.py", 52),
    Frame("Photos.__getitem__", DATA, 33),
)
# A forward pass of DistributedDataParallel: by its frames a run is known to be a job of ranks that
# exchange data.
FORWARD = (
    *CONV[:3],
    Frame("DistributedDataParallel.forward", LIBRARY + "torch/nn/parallel/distributed.py", 1784),
    *CONV[3:],
)

Work = Sequence[tuple[tuple[Frame, ...], int]]


class Rank:
    """What a rank works in each step, in milliseconds; it is in backward for the rest.

    ``cores`` is its CPU time.

    ``active`` is the share of its GPU's multiprocessors at work, from second to second, and
    ``clock_hz`` their clock; there is no GPU where it is empty.
    """

    def __init__(
        self,
        *work: tuple[tuple[Frame, ...], int],
        cores: float = 0.2,
        active: Sequence[float] = (),
        clock_hz: float = 1.98e9,
    ) -> None:
        self.work, self.cores, self.active, self.clock_hz = work, cores, active, clock_hz


def identity_of(rank: int) -> Identity:
    return Identity(7000 + rank, 1000)


def gpu_seen(number: int) -> records.DeviceSeen:
    return records.DeviceSeen(STARTED_NS, f"GPU {number}", number, "NVIDIA H100", f"GPU-{number}")


def write_job(
    path: Path,
    *ranks: Rank,
    seconds: int = 30,
    numbered: bool = True,
    pressure: float = 0.0,
    more: Sequence[records.Record] = (),
) -> Path:
    """Write a run whose processes make two steps a second together.

    ``numbered`` False gives them no ranks.
    """
    found: list[records.Record] = [
        records.ProcessSeen(
            identity_of(rank),
            None,
            COMMAND,
            "main",
            rank if numbered else None,
            None,
            "3.11.7",
            STARTED_NS,
        )
        for rank in range(len(ranks))
    ]
    found += more
    for second in range(seconds):
        found += _second(STARTED_NS + second * SECOND_NS, second, ranks, pressure)
    found.append(records.RunEnded(STARTED_NS + seconds * SECOND_NS, "target-exited", 0))
    return write_records(path, found)


def _second(
    start_ns: int, second: int, ranks: Sequence[Rank], pressure: float
) -> list[records.Record]:
    found: list[records.Record] = []
    points = [records.Point("host_cpu_pressure_share", pressure)]
    for number, rank in enumerate(ranks):
        identity = identity_of(number)
        # Uneven by a little from second to second, as everything is.
        work = [
            (stack, length_ms + 5 * ((second + number) % 3 - 1)) for stack, length_ms in rank.work
        ]
        spans = [*work, (BACKWARD, STEP_MS - sum(length_ms for _, length_ms in work))] * 2
        found.append(recording(identity, start_ns, [(identity.pid, "MainThread", True, spans)]))
        points.append(records.Point("cpu_cores", rank.cores, identity, identity.pid))
        points.append(records.Point("step_count", 2.0 * (second + 1), identity))
        if rank.active:
            device = f"GPU {number}"
            points.append(records.Point("gpu_process_memory_bytes", 2e9, identity, device=device))
            points.append(records.Point("gpu_utilization_share", 1.0, device=device))
            points.append(
                records.Point(
                    "gpu_sm_active_share", rank.active[second % len(rank.active)], device=device
                )
            )
            points.append(records.Point("gpu_sm_clock_hz", rank.clock_hz, device=device))
    found.append(records.PointsTaken(start_ns + SECOND_NS, tuple(points)))
    return found
