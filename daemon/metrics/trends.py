"""What takes more than a scrape may: the growth of memory, and the rate of steps that nobody counts.

Worked out in a thread, over the last part of the run, and the more seldom the longer it takes: at most a
two-thousandth of a core, so that all that the exporter does stays below four of them.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from profd.daemon.analyze.memory import GPU_SERIES, Growth, growth
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import take_steps
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import ProfdError
from profd.daemon.metrics.catalog import MEMORY_GROWING, MEMORY_LEFT, MEMORY_SLOPE, Sample
from profd.daemon.metrics.look import Look, rank_of
from profd.daemon.store.reader import RunReader

FIRST_NS = 60 * SECOND_NS
"""So old a run is when it is first looked at: before that there is little to see."""
RECENT_NS = 60 * SECOND_NS
GROWTH_NS = 600 * SECOND_NS
EVERY_S = 120.0
REST = 1999
"""For how many times a look's CPU time the next one is put off."""
_MEMORIES = {"rss_bytes": "rss", GPU_SERIES: "gpu"}


class Trend(msgspec.Struct, frozen=True):
    """How a run goes: ``growths`` are by training process, ``step_rate`` is None where nothing tells it."""

    growths: Mapping[int, tuple[Growth, ...]]
    step_rate: float | None


def take_trend(path: Path) -> Trend:
    """Return how the last part of a run goes; raises ProfdError."""
    with RunReader(path) as reader, reader.one_moment():
        info, phases = reader.info, PhaseIndex(reader)
        recent = Selection(from_ns=max(info.started_ns, info.end_ns - RECENT_NS), main_threads=True)
        trainers = frozenset(row.id for row in reader.processes.values() if row.role == "main" and row.ended_ns is None)
        growths: dict[int, tuple[Growth, ...]] = {}
        for one in growth(reader, Selection(from_ns=info.end_ns - GROWTH_NS, processes=trainers)):
            growths[one.process] = (*growths.get(one.process, ()), one)
        return Trend(growths, take_steps(reader, recent, phases).per_s)


def in_background(work: Callable[[], None]) -> None:
    """Work in a thread that nobody waits for."""
    threading.Thread(target=work, name="profd-trends", daemon=True).start()


class Trends:
    """How a run goes, as of the last look at it."""

    def __init__(
        self,
        start: Callable[[Callable[[], None]], None] = in_background,
        now_s: Callable[[], float] = time.monotonic,
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._start = start
        self._now_s = now_s
        self._spent_s = spent_s
        self._is_looking = False
        self._rests_until_s = 0.0
        self._trend: Trend | None = None

    @property
    def step_rate(self) -> float | None:
        """The steps a second of the run; None where nothing tells them yet."""
        return self._trend.step_rate if self._trend else None

    def take(self, look: Look) -> Iterator[Sample]:
        """Tell what the last look said, and look again where it is time to."""
        age_ns = look.reader.info.end_ns - look.reader.info.started_ns
        if not self._is_looking and age_ns >= FIRST_NS and self._now_s() >= self._rests_until_s:
            self._is_looking = True
            self._start(functools.partial(self._look, look.reader.path))
        yield from _memory(look, self._trend)

    def _look(self, path: Path) -> None:
        begun_s, spent_before_s = self._now_s(), self._spent_s()
        try:
            self._trend = take_trend(path)
        except ProfdError as error:  # the run may have ended and gone meanwhile; the next scrape meets that itself
            sys.stderr.write(f"{error}\n")
        finally:
            self._rests_until_s = begun_s + max(EVERY_S, REST * (self._spent_s() - spent_before_s))
            self._is_looking = False


def _memory(look: Look, trend: Trend | None) -> Iterator[Sample]:
    """Yield how the memory of each training process goes; NaN where that is not known."""
    for member in look.trainers():
        growths = {_MEMORIES.get(one.series): one for one in (trend.growths.get(member.id, ()) if trend else ())}
        for memory in _MEMORIES.values():
            one = growths.get(memory)
            labels = look.run, rank_of(member), memory
            if member.ended_ns is None and (one is not None or memory == "rss"):
                yield Sample(MEMORY_SLOPE, labels, _slope(one))
                yield Sample(MEMORY_GROWING, labels, one is not None and one.verdict == "growing")
                yield Sample(MEMORY_LEFT, labels, _left_s(one))


def _slope(one: Growth | None) -> float:
    return math.nan if one is None or one.slope_bytes_per_s is None else one.slope_bytes_per_s


def _left_s(one: Growth | None) -> float:
    return math.inf if one is None or one.time_to_limit_s is None else one.time_to_limit_s
