"""What a run did in each of some blocks of equal length, so that its own unrest tells how exact a mean is.

The error of sampling is not all that separates two stretches of a run: machines are uneven. Means of blocks hold both.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import take_steps
from profd.daemon.analyze.totals import selected_totals
from profd.daemon.store.reader import RunReader

BLOCKS = 12
TRAINING = frozenset(
    {"data wait", "data load in process", "forward", "loss", "backward", "optimizer", "host-to-device copy"}
)
_LOOKED_AT = 64
"""The beginning of the training is looked for in so many parts of the run."""

Item = tuple[str, str, str, int]
"""What is compared: its kind (phase, function or line), name, module path and line (0 but for lines)."""


class Mean(msgspec.Struct, frozen=True):
    """A mean over blocks with its standard error."""

    value: float
    error: float


class Blocks(msgspec.Struct, frozen=True):
    """By item its share of the main threads' time in each block, and seconds a step in each (empty: not known)."""

    shares: Mapping[Item, Sequence[float]]
    step_s: Sequence[float]
    from_ns: int
    to_ns: int

    def mean(self, item: Item, *, by_step: bool) -> Mean:
        """Return the share of an item, or its seconds a step."""
        shares = self.shares.get(item, [0.0] * BLOCKS)
        if not by_step:
            return mean_of(shares)
        return mean_of([share * step_s for share, step_s in zip(shares, self.step_s, strict=True)])


def take_blocks(reader: RunReader, selection: Selection) -> Blocks:
    """Return the blocks of a selection's range of time, from where the training begins."""
    phases = PhaseIndex(reader)
    from_ns, to_ns = _training_range(reader, selection, phases)
    edges = [from_ns + (to_ns - from_ns) * number // BLOCKS for number in range(BLOCKS + 1)]
    parts = [
        msgspec.structs.replace(selection, from_ns=start_ns, to_ns=end_ns)
        for start_ns, end_ns in itertools.pairwise(edges)
    ]
    shares: defaultdict[Item, list[float]] = defaultdict(lambda: [0.0] * BLOCKS)
    for number, part in enumerate(parts):
        for item, share in _shares(reader, part, phases).items():
            shares[item][number] = share
    rates = [take_steps(reader, part, phases).per_s for part in parts]
    known = [1 / rate for rate in rates if rate]
    return Blocks(shares, known if len(known) == BLOCKS else [], from_ns, to_ns)


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean of block values with its standard error, widened where neighbors are alike."""
    mean = statistics.fmean(values)
    spread = statistics.stdev(values, mean)
    if not spread:
        return Mean(mean, 0.0)
    centered = [value - mean for value in values]
    alike = sum(one * other for one, other in itertools.pairwise(centered)) / sum(x * x for x in centered)
    bounded = min(max(alike, 0.0), 0.8)
    return Mean(mean, spread / math.sqrt(len(values)) * math.sqrt((1 + bounded) / (1 - bounded)))


def _shares(reader: RunReader, selection: Selection, phases: PhaseIndex) -> dict[Item, float]:
    """Return the share of each phase, function (by itself) and line of the user's code (with what it calls)."""
    spent_ns: Counter[Item] = Counter()
    whole_ns = 0
    for total in selected_totals(reader, selection, phases):
        whole_ns += total.duration_ns
        leaf = reader.frames_of(total.stack)[-1]
        line = phases.user_line(total.stack)
        spent_ns["phase", phases.of_stack(total.stack), "", 0] += total.duration_ns
        spent_ns["function", leaf.function, leaf.module_path, 0] += total.duration_ns
        if line is not None:
            spent_ns["line", line.source or line.function, line.module_path, line.line] += total.duration_ns
    return {item: time_ns / whole_ns for item, time_ns in spent_ns.items()} if whole_ns else {}


def _training_range(reader: RunReader, selection: Selection, phases: PhaseIndex) -> tuple[int, int]:
    """Return the range of time that is compared: without the start-up, where the program has one that can be told."""
    info = reader.info
    from_ns = info.started_ns if selection.from_ns is None else max(selection.from_ns, info.started_ns)
    to_ns = info.end_ns if selection.to_ns is None else min(selection.to_ns, info.end_ns)
    to_ns = max(to_ns, from_ns)
    if selection.from_ns is not None:
        return from_ns, to_ns
    for number in range(_LOOKED_AT // 2):
        start_ns = from_ns + (to_ns - from_ns) * number // _LOOKED_AT
        end_ns = from_ns + (to_ns - from_ns) * (number + 1) // _LOOKED_AT
        part = msgspec.structs.replace(selection, from_ns=start_ns, to_ns=end_ns)
        if any(phases.of_stack(total.stack) in TRAINING for total in selected_totals(reader, part, phases)):
            return end_ns, to_ns
    return from_ns, to_ns
