"""A run with known shares of time that its counts of samples belie.

The main process runs BACKWARD for ten seconds sampled at 100 Hz, then OPTIMIZER for ten at 25 Hz.
Its two workers are sampled in turns of four seconds, three turns against two: the first runs DEFORM
all the time, the second LOAD.
"""

from __future__ import annotations

from pathlib import Path

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.records import Frame, Identity
from support.synthetic import (
    COMMAND,
    MAIN,
    STARTED_NS,
    main_process,
    recording,
    worker,
    write_records,
)
from support.training_stacks import BACKWARD, DEFORM, LOAD, OPTIMIZER

SECONDS = 20
TURN_S = 4
SHARES = {BACKWARD: 1 / 6, OPTIMIZER: 1 / 6, DEFORM: 1 / 3, LOAD: 1 / 3}
"""Of the time of all threads."""
MAIN_SHARES = {BACKWARD: 1 / 2, OPTIMIZER: 1 / 2}
SAMPLES = {BACKWARD: 1000, OPTIMIZER: 250, DEFORM: 1200, LOAD: 800}


def write_run(path: Path) -> Path:
    """Write the run and return its path."""
    found: list[records.Record] = [main_process()]
    found += [
        records.ProcessSeen(worker(n), MAIN, COMMAND, "worker", None, n, "3.11.7", STARTED_NS)
        for n in (1, 2)
    ]
    for second in range(SECONDS):
        is_fast = second < SECONDS // 2
        found.append(
            _recording(MAIN, second, 1, BACKWARD if is_fast else OPTIMIZER, 100 if is_fast else 25)
        )
    for turn in range(SECONDS // TURN_S):
        number = 1 + turn % 2
        found.append(
            _recording(worker(number), turn * TURN_S, TURN_S, (DEFORM, LOAD)[number - 1], 100)
        )
    found.append(records.RunEnded(STARTED_NS + SECONDS * SECOND_NS, "stopped"))
    return write_records(path, found)


def _recording(
    identity: Identity, second: int, seconds: int, stack: tuple[Frame, ...], rate_hz: int
) -> records.RecordingTaken:
    """Return a recording in which one stack was seen every time, as half-second intervals."""
    thread = (identity.pid, "MainThread", True, ((stack, 500),) * (2 * seconds))
    start_ns, sample_ns = STARTED_NS + second * SECOND_NS, SECOND_NS // rate_hz
    return recording(
        identity, start_ns, (thread,), duration_ns=seconds * SECOND_NS, sample_ns=sample_ns
    )
