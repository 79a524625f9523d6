"""GPUs of two runs beside each other: how busy they were, and for which share of the time idle.

Runs may have got different GPUs of a machine: the first of one is compared with the first of the other, and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from profd.daemon.analyze.compare.blocks import BLOCKS, mean_of
from profd.daemon.analyze.compare.readings import Pair
from profd.daemon.analyze.gpu.usage import IDLE_BELOW, UTILIZATION
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.stepfunction import Step, StepFunction

LEAST_POINTS = 0.02
"""A utilization that differs by less than two points is alike."""

Measure = Callable[[float], float]


def _utilization(value: float) -> float:
    return value


def _idle(value: float) -> float:
    return float(value < IDLE_BELOW)


_MEASURES: tuple[tuple[str, Measure], ...] = (("utilization", _utilization), ("idle share", _idle))


def gpu_pairs(readers: tuple[RunReader, RunReader], parts: tuple[Selection, Selection]) -> Iterator[Pair]:
    """Yield what was read of each GPU that both runs have, over the parts of the runs that are compared."""
    tracks = [list(_tracks(reader)) for reader in readers]
    for number, pair in enumerate(zip(*tracks, strict=False)):
        for name, measure in _MEASURES:
            sides = [_by_block(track, measure, part) for track, part in zip(pair, parts, strict=True)]
            if all(sides):
                base, new = map(mean_of, sides)
                yield Pair("gpu", f"GPU {number}", name, "share", base, new, BLOCKS - 1, LEAST_POINTS)


def _tracks(reader: RunReader) -> Iterator[StepFunction]:
    """Yield the utilization of each GPU, in the order of their numbers."""
    for device in sorted(reader.devices(), key=lambda row: (row.index, row.name)):
        series = reader.find_series(UTILIZATION, device=device.name)
        if series is not None:
            yield reader.steps(series.id)


def _by_block(track: StepFunction, measure: Measure, part: Selection) -> list[float]:
    """Return the mean of a measure over each block; nothing where one of them was not read."""
    measured = StepFunction(
        [Step(step.start_ns, step.end_ns, measure(step.value)) for step in track.steps], track.period_ns
    )
    from_ns, to_ns = part.from_ns or 0, part.to_ns or 0
    edges = [from_ns + (to_ns - from_ns) * number // BLOCKS for number in range(BLOCKS + 1)]
    found = [measured.mean(start_ns, end_ns) for start_ns, end_ns in itertools.pairwise(edges)]
    return [mean for mean, _ in found] if all(known_ns for _, known_ns in found) else []
