"""Makes a run of two ranks with all that a report can filter by: workers, helpers' threads, GPUs,
CPU time, windows.
"""

from __future__ import annotations

from pathlib import Path

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.records import Identity, OperatorTotals
from support.synthetic import (
    BACKWARD,
    DATA_WAIT,
    LOAD,
    PIN_MEMORY,
    STARTED_NS,
    recording,
    write_records,
)

SECONDS = 20
RANKS = (Identity(5000, 1000), Identity(5001, 1001))
WORKERS = (Identity(5100, 1100), Identity(5101, 1101))
STEPS_PER_S = 4.0
WINDOW_MS = (12_000, 12_250)


def operator(
    name: str, shapes: str, calls: int, self_cpu_us: int, self_cuda_us: int = 0
) -> OperatorTotals:
    """Return an operator whose total times are twice its own."""
    cpu, cuda = 1000 * self_cpu_us, 1000 * self_cuda_us
    return OperatorTotals(
        name, "cpu", False, shapes, calls, cpu, 2 * cpu, cuda, 2 * cuda, 0, 0, 2048, 4096
    )


OPERATORS = (
    operator("aten::conv2d", "[[8, 3, 32, 32]]", 3, 1_500, 9_000),
    operator("aten::conv2d", "[[8, 64, 16, 16]]", 6, 2_500, 6_000),
    operator("aten::addmm", "[[8, 512]]", 2, 400, 100),
    OperatorTotals(
        "implicit_gemm", "cuda", False, "[]", 11, 0, 0, 15_100_000, 15_100_000, 0, 0, 0, 0
    ),
)


def write_run(path: Path) -> Path:
    """Write a run whose main threads wait a second and compute a second.

    Rank 0 has a GPU that idles while it waits.

    The main threads use the CPU while they compute, the second rank half a second later. Rank 0
    grows by 3 MB a second.
    """
    found = [
        *_processes(),
        *(_recording(rank) for rank in range(2)),
        *(_worker(rank) for rank in range(2)),
    ]
    found += [_readings(at_ms) for at_ms in range(0, SECONDS * 1000 + 1, 250)]
    found.append(_window())
    found.append(records.RunEnded(STARTED_NS + SECONDS * SECOND_NS, "target-exited", 0))
    return write_records(path, found)


def _processes() -> list[records.Record]:
    command = ("python", "train.py")
    found: list[records.Record] = []
    for rank in range(2):
        found.append(
            records.ProcessSeen(
                RANKS[rank], None, command, "main", rank, None, "3.11.7", STARTED_NS
            )
        )
        found.append(
            records.ProcessSeen(
                WORKERS[rank], RANKS[rank], command, "worker", rank, 1, "3.11.7", STARTED_NS
            )
        )
    return found


def _recording(rank: int) -> records.Record:
    identity = RANKS[rank]
    main = (
        identity.pid,
        "MainThread",
        True,
        ((DATA_WAIT, 1000), (BACKWARD, 1000)) * (SECONDS // 2),
    )
    pin = (identity.pid + 50, "Thread-1 (_pin_memory_loop)", False, ((PIN_MEMORY, 1000),) * SECONDS)
    return recording(identity, STARTED_NS, (main, pin), duration_ns=SECONDS * SECOND_NS)


def _worker(rank: int) -> records.Record:
    thread = (WORKERS[rank].pid, "MainThread", True, ((LOAD, 1000),) * SECONDS)
    return recording(WORKERS[rank], STARTED_NS, (thread,), duration_ns=SECONDS * SECOND_NS)


def _computes(at_ms: int) -> bool:
    return (at_ms - 1) % 2000 >= 1000


def _readings(at_ms: int) -> records.Record:
    gpu = 0.9 if _computes(at_ms) else 0.0
    points = [
        records.Point("gpu_utilization_share", gpu, device="gpu0"),
        records.Point("gpu_process_memory_bytes", 2e9, RANKS[0], device="gpu0"),
        records.Point("step_count", round(STEPS_PER_S * at_ms / 1000), RANKS[0]),
    ]
    for rank, identity in enumerate(RANKS):
        points += [
            records.Point(
                "cpu_cores", 0.9 if _computes(at_ms - 500 * rank) else 0.1, identity, identity.pid
            ),
            records.Point("rss_bytes", 1e9 + (3e3 * at_ms if rank == 0 else 0), identity),
        ]
    return records.PointsTaken(STARTED_NS + at_ms * MILLISECOND_NS, tuple(points))


def _window() -> records.Record:
    from_ns, to_ns = (STARTED_NS + at_ms * MILLISECOND_NS for at_ms in WINDOW_MS)
    return records.WindowTaken(
        RANKS[0], to_ns, "kineto", from_ns, "", from_ns, to_ns, (records.WindowStep(from_ns, to_ns),),
        (records.WindowGpu(0, 150 * MILLISECOND_NS, 50 * MILLISECOND_NS, 0, 30 * MILLISECOND_NS),),
        (records.HostGap(0, from_ns, from_ns + 30 * MILLISECOND_NS, RANKS[0].pid),), OPERATORS,
    )  # fmt: skip
