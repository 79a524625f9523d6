"""Memory, GPUs and operators of two runs beside each other.

If several values of each run show how uneven a number is, its difference has bounds, which hold for
all such numbers at once. If there is one value a run, as of a peak, a change is what is larger than
``least``. Operators need several windows of a run: a single one gives no bounds, and no difference
is called a change.

Runs may have got different GPUs of a machine: the first of one is compared with the first of the
other, and so on. PIDs mean nothing from one run to another, so processes are grouped by rank and
role: the process with the most memory, or that grows fastest, counts for its role.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from profd.daemon.analyze.confidence import CONFIDENCE_95, standard_error, t_quantile
from profd.daemon.analyze.memory import Growth, growth
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import first_and_last, take_course, total_of
from profd.daemon.analyze.torchtraces import selected_windows
from profd.daemon.analyze.windows import HOST
from profd.daemon.clock import SECOND_NS
from profd.daemon.compare.blocks import BLOCKS, Mean, mean_of
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ProcessRow, WindowRow
from profd.daemon.store.stepfunction import (
    MEMORY_OF_PROCESS,
    UTILIZATION,
)
from profd.daemon.timerange import TimeRange

Readers = tuple[RunReader, RunReader]
Selections = tuple[Selection, Selection]


class Reading(msgspec.Struct, frozen=True):
    """A number of both runs.

    ``kind`` is memory, gpu or operator, ``name`` says whose it is, ``measure`` what it is. ``unit``
    is bytes, bytes/s, share, or s/step. ``low`` and ``high`` bound the difference; None if it is
    unknown how uneven the number is.
    """

    kind: str
    name: str
    measure: str
    unit: str
    base: float
    new: float
    difference: float
    low: float | None
    high: float | None
    is_significant: bool


class Pair(msgspec.Struct, frozen=True):
    """A number of both runs before it is judged.

    ``freedom`` are the degrees of freedom of its errors, 0 if unknown. A difference below ``least``
    is no change.
    """

    kind: str
    name: str
    measure: str
    unit: str
    base: Mean
    new: Mean
    freedom: int
    least: float


def judged(pairs: Sequence[Pair], error_rate: float) -> tuple[Reading, ...]:
    """Judge numbers: chance makes any of those with bounds a change at most at ``error_rate``."""
    bounded = sum(pair.freedom > 0 for pair in pairs)
    found = []
    for pair in pairs:
        more, margin = pair.new.less(pair.base), 0.0
        low = high = None
        if pair.freedom > 0:
            margin = t_quantile(1 - error_rate / bounded / 2, pair.freedom) * more.error
            low, high = more.value - margin, more.value + margin
            if pair.unit == "share":
                low, high = max(low, -1.0), min(high, 1.0)
        is_significant = abs(more.value) > margin and abs(more.value) >= pair.least
        values = pair.base.value, pair.new.value, more.value, low, high, is_significant
        found.append(Reading(pair.kind, pair.name, pair.measure, pair.unit, *values))
    return tuple(found)


LEAST = 0.02
"""The smallest part of a step, of a GPU's time, or of that of all operators that is a change.

Two runs of one script are seldom more alike.
"""


def gpu_pairs(base: Sequence[list[float]], new: Sequence[list[float]]) -> Iterator[Pair]:
    """Yield how busy and idle the GPUs of both runs were, as ``busy_by_block`` has them."""
    for number, sides in enumerate(zip(base, new, strict=False)):
        if all(sides):
            busy = [mean_of(side) for side in sides]
            idle = [Mean(1 - one.value, one.error) for one in busy]
            for name, (first, second) in (("utilization", busy), ("idle share", idle)):
                title = f"GPU {number}"
                yield Pair("gpu", title, name, "share", first, second, BLOCKS - 1, LEAST)


def busy_by_block(reader: RunReader, part: Selection) -> list[list[float]]:
    """Return by GPU how busy it was in each block; empty if that is unknown of a block."""
    found = []
    for device in sorted(reader.devices(), key=lambda row: (row.index, row.name)):
        series = reader.find_series(UTILIZATION, device=device.name)
        if series is not None:
            means = [total_of(reader, series.id, block).mean for block in part.time.cut(BLOCKS)]
            known = [mean for mean in means if mean is not None]
            found.append(known if len(known) == BLOCKS else [])
    return found


LEAST_MEMORY_SHARE = 0.05
LEAST_BYTES = 16e6
"""A smaller difference of peaks is no change: allocators and caches differ as much by chance."""
LEAST_LIFE = 0.1
"""The share of the time in which a role must live: chance decides if a short life is seen."""
_KINDS = {"rss_bytes": "RSS", MEMORY_OF_PROCESS: "GPU memory"}

MemoryKey = tuple[str, str]
"""A rank and role in words, and the kind of memory."""
Held = tuple[float, Growth | None]
"""The most memory of one process of a role, and the fastest growth; None if unknown."""


def memory_pairs(*sides: Mapping[MemoryKey, Held]) -> Iterator[Pair]:
    """Yield peaks and slopes of each role that either run has, over the parts that are compared.

    A slope without growth is the slope of noise.
    """
    for key in sorted(sides[0].keys() | sides[1].keys()):
        role, kind = key
        held = [side.get(key, (0.0, None)) for side in sides]
        base, new = (Mean(peak_bytes, 0.0) for peak_bytes, _ in held)
        least = max(LEAST_MEMORY_SHARE * max(base.value, new.value), LEAST_BYTES)
        yield Pair("memory", role, f"{kind}, peak", "bytes", base, new, 0, least)
        grown = [one for _, one in held if one is not None]
        if len(grown) == len(sides):
            least = 0.0 if any(one.verdict == "growing" for one in grown) else math.inf
            base, new = map(_mean_slope, grown)
            yield Pair("memory", role, f"{kind}, growth", "bytes/s", base, new, BLOCKS - 1, least)


def _mean_slope(grown: Growth) -> Mean:
    low, high = grown.interval_bytes_per_s or (0.0, 0.0)
    return Mean(grown.slope_bytes_per_s or 0.0, (high - low) / 2 / CONFIDENCE_95)


def take_held(reader: RunReader, part: Selection) -> dict[MemoryKey, Held]:
    peaks: defaultdict[MemoryKey, float] = defaultdict(float)
    lives_ns: defaultdict[MemoryKey, int] = defaultdict(int)
    grown: dict[MemoryKey, Growth] = {}
    for one in growth(reader, part):
        if one.series not in _KINDS:
            continue
        key = role_title(reader.processes[one.process]), _KINDS[one.series]
        series = reader.find_series(one.series, one.process, one.device)
        if series is None or (ends := first_and_last(reader, series.id, part.time)) is None:
            continue
        first, last = ends
        least = max(peaks[key], first.value if first == last else 0.0)
        time = TimeRange(first.at_ns, last.at_ns + 1)
        peaks[key] = peak_of(reader, series.id, time, least)
        lives_ns[key] += last.at_ns - first.at_ns
        if one.slope_bytes_per_s is not None:
            grown[key] = max(
                one, grown.get(key, one), key=lambda each: each.slope_bytes_per_s or 0.0
            )
    least_ns = LEAST_LIFE * part.time.length_ns
    return {
        key: (peak, grown.get(key))
        for key, peak in peaks.items()
        if peak and lives_ns[key] >= least_ns
    }


def peak_of(reader: RunReader, series: int, time: TimeRange, least: float) -> float:
    """Return the most that two readings in a row had, or ``least``.

    Which single reading a spike is caught by is chance. A process that ends is such a spike, as it
    touches libraries that it did not use before.
    """
    # Of three readings that hold in a minute two lie in it.
    minutes = take_course(reader, series, time).minutes
    least = max([least, *(one.least for one in minutes if one.readings > 2)])
    return reader.most_in_a_row(series, time, least)


def role_title(row: ProcessRow) -> str:
    """Return the rank and role of a process in words: ``main``, ``rank 1``, ``rank 1 worker``."""
    rank = "" if row.rank is None else f"rank {row.rank}"
    return rank if rank and row.is_main else f"{rank} {row.role}".strip()


MOST = 40
"""How many operators of each measure are compared: a step has hundreds, and few matter."""
_LEAST_WINDOWS = 3
_OPERATOR_MEASURES = ("self CPU", "self CUDA")

OperatorKey = tuple[str, str]
"""An operator and a measure."""
Operators = dict[OperatorKey, float]
"""The operators' own seconds a step."""


def operator_pairs(base: Sequence[Operators], new: Sequence[Operators]) -> Iterator[Pair]:
    """Yield seconds a step of the operators that take most, if both runs have whole steps."""
    if not base or not new:
        return
    windows = min(len(base), len(new))
    freedom = windows - 1 if windows >= _LEAST_WINDOWS else 0
    for measure in _OPERATOR_MEASURES:
        sides = [_means(side, measure) for side in (base, new)]
        whole = sum(mean.value for mean in sides[0].values())
        least = LEAST * whole if freedom else math.inf
        both = {
            name: [side.get(name, Mean(0.0, 0.0)) for side in sides]
            for name in sorted({*sides[0], *sides[1]})
        }
        most = sorted(both, key=lambda name: max(mean.value for mean in both[name]), reverse=True)
        for name in most[:MOST]:
            first, second = both[name]
            yield Pair("operator", name, measure, "s/step", first, second, freedom, least)


def _means(windows: Sequence[Operators], measure: str) -> dict[str, Mean]:
    found = {}
    for name in {name for window in windows for name, kind in window if kind == measure}:
        values = [window.get((name, measure), 0.0) for window in windows]
        error = standard_error(values) if len(values) > 1 else 0.0
        found[name] = Mean(statistics.fmean(values), error)
    return found


def take_operators(reader: RunReader, selection: Selection) -> list[Operators]:
    """Return the operators' own seconds a step of each window with a whole step.

    Windows of one request count as one.
    """
    together: defaultdict[int, list[WindowRow]] = defaultdict(list)
    for row in selected_windows(reader, selection):
        if row.time.within(selection.time) == row.time:
            together[row.asked_ns].append(row)
    found = (_seconds_a_step(reader, rows) for rows in together.values())
    return list(filter(None, found))


def _seconds_a_step(reader: RunReader, rows: Sequence[WindowRow]) -> Operators:
    """Return the operators' own seconds a step; nothing without a whole step."""
    spent_ns: Counter[OperatorKey] = Counter()
    for row in rows:
        for one in reader.operators(row.id):
            # Annotations hold operators, and kernels are counted for the operators that start them.
            if one.device == HOST and not one.is_annotation:
                spent_ns[one.name, _OPERATOR_MEASURES[0]] += one.self_cpu_ns
                spent_ns[one.name, _OPERATOR_MEASURES[1]] += one.self_cuda_ns
    steps = sum(len(reader.window_steps(row.id)) for row in rows)
    if not steps:
        return {}
    return {key: time_ns / SECOND_NS / steps for key, time_ns in spent_ns.items() if time_ns}
