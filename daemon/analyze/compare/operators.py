"""Operators of the torch.profiler windows of two runs beside each other: their own CPU and GPU time, by the step.

What tells how uneven an operator is are several windows of a run. Of a single one there are no bounds, and no
difference is called a change.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from profd.daemon.analyze.compare.blocks import Mean
from profd.daemon.analyze.compare.readings import Pair
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import WindowRow

MOST = 40
"""Operators that are compared of each measure, those that take the most: a step has hundreds, and few matter."""
LEAST_SHARE = 0.02
"""A difference of less than this part of all operators' time is none."""
_LEAST_WINDOWS = 3
_MEASURES = ("self CPU", "self CUDA")

Key = tuple[str, str]
"""An operator and a measure."""


def operator_pairs(readers: tuple[RunReader, RunReader], selections: tuple[Selection, Selection]) -> Iterator[Pair]:
    """Yield seconds a step of the operators that take most, where both runs have windows with whole steps."""
    base, new = (_windows(reader, selection) for reader, selection in zip(readers, selections, strict=True))
    if not base or not new:
        return
    tells = min(len(base), len(new)) >= _LEAST_WINDOWS
    for measure in _MEASURES:
        sides = [_means(windows, measure) for windows in (base, new)]
        whole = sum(mean.value for mean in sides[0].values())
        least = LEAST_SHARE * whole if tells else math.inf
        for name in _heaviest(sides):
            means = [side.get(name, Mean(0.0, 0.0)) for side in sides]
            freedom = min(len(base), len(new)) - 1 if tells else 0
            yield Pair("operator", name, measure, "s/step", means[0], means[1], freedom, least)


def _heaviest(sides: Sequence[Mapping[str, Mean]]) -> list[str]:
    most: Counter[str] = Counter()
    for side in sides:
        for name, mean in side.items():
            most[name] = max(most[name], mean.value)  # type: ignore[assignment]  # a Counter of seconds
    return [name for name, _ in most.most_common(MOST)]


def _means(windows: Sequence[Mapping[Key, float]], measure: str) -> dict[str, Mean]:
    """Return by operator the mean over windows with its standard error."""
    names = {name for window in windows for name, kind in window if kind == measure}
    return {name: _mean([window.get((name, measure), 0.0) for window in windows]) for name in names}


def _mean(values: Sequence[float]) -> Mean:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Mean(statistics.fmean(values), error)


def _windows(reader: RunReader, selection: Selection) -> list[Mapping[Key, float]]:
    """Return seconds a step by operator of each window; ranks whose windows were asked for at once are one."""
    together: defaultdict[int, list[WindowRow]] = defaultdict(list)
    for row in reader.windows():
        if not row.error and selection.takes_process(reader.processes[row.process]) and _lies_in(row, selection):
            together[row.asked_ns].append(row)
    found = (_seconds_a_step(reader, rows) for rows in together.values())
    return [window for window in found if window]


def _lies_in(row: WindowRow, selection: Selection) -> bool:
    return (selection.from_ns is None or row.start_ns >= selection.from_ns) and (
        selection.to_ns is None or row.end_ns <= selection.to_ns
    )


def _seconds_a_step(reader: RunReader, rows: Sequence[WindowRow]) -> dict[Key, float]:
    """Return the operators' own seconds a step of one rank, from windows of some; empty where no step is whole."""
    steps = sum(len(reader.window_steps(row.id)) for row in rows)
    spent_ns: Counter[Key] = Counter()
    for row in rows:
        for one in reader.operators(row.id):
            # Annotations hold operators, and kernels are counted for the operators that start them.
            if one.device == "cpu" and not one.is_annotation:
                spent_ns[one.name, _MEASURES[0]] += one.self_cpu_ns
                spent_ns[one.name, _MEASURES[1]] += one.self_cuda_ns
    return {key: time_ns / SECOND_NS / steps for key, time_ns in spent_ns.items() if time_ns} if steps else {}
