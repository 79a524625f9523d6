"""Makes runs of uneven steps.

One part can be slower than in another run: what comparisons are tried on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.compare.diff import Diff, take_compared, take_diff
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame
from support.synthetic import (
    BACKWARD,
    DATA_WAIT,
    MAIN,
    MAIN_TID,
    OPTIMIZER,
    STARTED_NS,
    main_process,
    recording,
    write_records,
)

Lengths = dict[tuple[Frame, ...], float]
STEP_MS: Lengths = {DATA_WAIT: 60.0, BACKWARD: 100.0, OPTIMIZER: 40.0}
STEPS = 300
PLAIN_MS: Lengths = {
    (Frame("<module>", "/srv/a.py", 9), Frame(name, "/srv/a.py", line)): 100.0
    for line, name in enumerate("abc", 1)
}
"""Of no phase, so that no cycle of phases tells the steps."""


def write_steps(
    path: Path,
    seed: int,
    slower: float = 1.0,
    lengths_ms: Lengths = STEP_MS,
    *,
    counted_every: int = 5,
    beside: Sequence[records.Record] = (),
) -> Path:
    """Write a run of steps that are uneven by 10 %, the second part of each ``slower`` times as
    long.

    ``beside`` is what else the run has.
    """
    slow = list(lengths_ms)[1]
    chance = random.Random(seed)
    spans: list[tuple[tuple[records.Frame, ...], int]] = []
    ends_ms: list[int] = []
    for _ in range(STEPS):
        for stack, length_ms in lengths_ms.items():
            spans.append(
                (
                    stack,
                    round(length_ms * (slower if stack == slow else 1.0) * chance.gauss(1.0, 0.1)),
                )
            )
        ends_ms.append(sum(length for _, length in spans[-3:]) + (ends_ms[-1] if ends_ms else 0))
    thread = (MAIN_TID, "MainThread", True, spans)
    found: list[records.Record] = [
        main_process(),
        *beside,
        recording(MAIN, STARTED_NS, (thread,), duration_ns=ends_ms[-1] * MILLISECOND_NS),
    ]
    for step in range(counted_every - 1, STEPS - 1, counted_every):
        points = (
            records.Point("step_count", step + 1.0, MAIN),
            records.Point("step_count_error", 0.5, MAIN),
        )
        found.append(records.PointsTaken(STARTED_NS + ends_ms[step] * MILLISECOND_NS, points))
    found.append(records.RunEnded(STARTED_NS + ends_ms[-1] * MILLISECOND_NS, "target-exited", 0))
    return write_records(path, found)


def diff_of(base: Path, new: Path) -> Diff:
    """Return how two runs differ."""
    with RunReader(base) as first, RunReader(new) as second:
        return take_diff(take_compared(first), take_compared(second))
