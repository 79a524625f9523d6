"""Memory of two runs beside each other, by the role of processes: how much at most, and how fast it grows.

PIDs mean nothing from one run to another, so processes are put together by rank and role: of a role counts the process
that has most, or that grows fastest.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from profd.daemon.analyze.certainty.confidence import CONFIDENCE_95
from profd.daemon.analyze.compare.blocks import BLOCKS, Mean
from profd.daemon.analyze.compare.readings import Pair
from profd.daemon.analyze.memory.growth import Growth, growth
from profd.daemon.analyze.memory.headroom import GPU_SERIES
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, ProcessRow

LEAST_SHARE = 0.05
LEAST_BYTES = 16e6
"""A peak that differs by less is none of a change: allocators and caches differ by as much from run to run."""
LEAST_LIFE = 0.1
"""A role that was there for less of the time is not compared: whether a short-lived helper was seen is chance."""
_KINDS = {"rss_bytes": "RSS", GPU_SERIES: "GPU memory"}

Key = tuple[str, str]
"""A rank and role in words, and the kind of memory."""


class Held(msgspec.Struct, frozen=True):
    """The memory of a role: the most that one process held, and how fast the fastest grows (None: not known)."""

    peak_bytes: float
    growth: Growth | None


def memory_pairs(readers: tuple[RunReader, RunReader], parts: tuple[Selection, Selection]) -> Iterator[Pair]:
    """Yield peaks and slopes of each role that either run has, over the parts of the runs that are compared."""
    base, new = (_held(reader, part) for reader, part in zip(readers, parts, strict=True))
    for key in sorted(base.keys() | new.keys()):
        yield _peak(key, base.get(key), new.get(key))
        if (slope := _slope(key, base.get(key), new.get(key))) is not None:
            yield slope


def _peak(key: Key, base: Held | None, new: Held | None) -> Pair:
    peaks = [held.peak_bytes if held else 0.0 for held in (base, new)]
    least = max(LEAST_SHARE * max(peaks), LEAST_BYTES)
    return Pair("memory", key[0], f"{key[1]}, peak", "bytes", Mean(peaks[0], 0.0), Mean(peaks[1], 0.0), 0, least)


def _slope(key: Key, base: Held | None, new: Held | None) -> Pair | None:
    """Return the slopes, where both are known; a slope of what does not grow is the slope of noise."""
    sides = [held.growth if held else None for held in (base, new)]
    if sides[0] is None or sides[1] is None:
        return None
    least = 0.0 if any(side and side.verdict == "growing" for side in sides) else float("inf")
    means = [_mean(side) for side in (sides[0], sides[1])]
    return Pair("memory", key[0], f"{key[1]}, growth", "bytes/s", means[0], means[1], BLOCKS - 1, least)


def _mean(grown: Growth) -> Mean:
    low, high = grown.interval_bytes_per_s or (0.0, 0.0)
    return Mean(grown.slope_bytes_per_s or 0.0, (high - low) / 2 / CONFIDENCE_95)


def _held(reader: RunReader, part: Selection) -> Mapping[Key, Held]:
    """Return the memory of each role in a part of a run."""
    peaks: defaultdict[Key, float] = defaultdict(float)
    lives_ns: defaultdict[Key, int] = defaultdict(int)
    grown: dict[Key, Growth] = {}
    for one in growth(reader, part):
        if one.series not in _KINDS:
            continue
        key = role_title(reader.processes[one.process]), _KINDS[one.series]
        points = _points(reader, one, part)
        peaks[key] = max(peaks[key], _held_peak(points))
        lives_ns[key] += points[-1].at_ns - points[0].at_ns if points else 0
        if one.slope_bytes_per_s is not None:
            grown[key] = max(one, grown.get(key, one), key=lambda each: each.slope_bytes_per_s or 0.0)
    least_ns = LEAST_LIFE * ((part.to_ns or 0) - (part.from_ns or 0))
    return {key: Held(peak, grown.get(key)) for key, peak in peaks.items() if peak and lives_ns[key] >= least_ns}


def _held_peak(points: Sequence[PointRow]) -> float:
    """Return the most that two readings in a row had: which single reading a spike is caught by is chance.

    A process that ends is such a spike, as it touches libraries that it did not use before.
    """
    values = [point.value for point in points]
    return max(map(min, itertools.pairwise(values)), default=max(values, default=0.0))


def _points(reader: RunReader, one: Growth, part: Selection) -> list[PointRow]:
    series = reader.find_series(one.series, one.process, one.device)
    return reader.points(series.id, part.from_ns, part.to_ns) if series else []


def role_title(row: ProcessRow) -> str:
    """Return the rank and role of a process in words: ``main``, ``rank 1``, ``rank 1 worker``."""
    words = [] if row.rank is None else [f"rank {row.rank}"]
    if row.role != "main" or not words:
        words.append(row.role)
    return " ".join(words)
