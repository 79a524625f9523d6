"""How well the run is seen and what that costs; ``analyze.coverage`` says what the shares mean."""

from __future__ import annotations

import math
from collections.abc import Iterator

from profd.daemon.analyze.coverage import COST_SERIES, sampled_life
from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics.catalog import (
    COVERAGE,
    HANGING,
    HANGS,
    RUN_INFO,
    RUN_STARTED,
    RUN_WRITTEN,
    SAMPLES,
    SELF_CPU,
    SELF_MEMORY,
    TORN,
    TORN_SAMPLES,
    Sample,
)
from profd.daemon.metrics.look import Integral, Look
from profd.daemon.store.rows import RecordedTotal, RecordingRow

MEMORY = "profd_rss_bytes"


class State:
    """What the run is, and whether it goes on."""

    def take(self, look: Look) -> Iterator[Sample]:
        """Tell it as the run file does."""
        info = look.reader.info
        yield Sample(RUN_INFO, (info.id, info.name, info.mode, info.host), 1)
        yield Sample(RUN_STARTED, (info.id,), info.started_ns / SECOND_NS)
        yield Sample(RUN_WRITTEN, (info.id,), info.end_ns / SECOND_NS)
        hangs = look.reader.hang_count()
        yield Sample(HANGS, (info.id,), hangs.count)
        yield Sample(HANGING, (info.id,), min(hangs.going_on, 1))


class SelfCost:
    """What the recorder takes."""

    def __init__(self) -> None:
        self._cpu: Integral | None = None

    def take(self, look: Look) -> Iterator[Sample]:
        """Take in its readings of itself."""
        self._cpu = self._cpu or Integral(look.began_ns)
        for series in look.of_name(COST_SERIES):
            self._cpu.add(look.reader.points(series.id, self._cpu.newest_ns + 1))
        yield Sample(SELF_CPU, (look.run,), self._cpu.total_s)
        yield Sample(SELF_MEMORY, (look.run,), look.value(MEMORY) or 0.0)


class Quality:
    """What was sampled of the training processes, and how many stacks were torn."""

    def __init__(self) -> None:
        self._samples = self._torn = 0
        self._lives: dict[int, _Life] = {}
        self._ended_lived_ns = self._ended_covered_ns = 0

    def take(self, look: Look) -> Iterator[Sample]:
        """Take in the new recordings."""
        for row in look.recordings:
            self._samples += row.samples
            self._torn += row.torn
        recorded = RecordedTotal(self._samples, self._torn)
        self._live(look)
        yield Sample(COVERAGE, (look.run,), self._coverage())
        yield Sample(SAMPLES, (look.run,), recorded.samples)
        yield Sample(TORN_SAMPLES, (look.run,), recorded.torn)
        yield Sample(TORN, (look.run,), recorded.torn_share or 0.0)

    def _live(self, look: Look) -> None:
        trainers = {member.id: member for member in look.trainers()}
        for process in self._lives.keys() - trainers.keys():
            life = self._lives.pop(process)
            self._ended_lived_ns += life.lived_ns
            self._ended_covered_ns += life.inside_ns
        for process in trainers:
            self._lives.setdefault(process, _Life())
        for row in look.recordings:
            if row.process in self._lives and row.samples > row.torn:
                self._lives[row.process].cover(row)
        for process, life in self._lives.items():
            start_ns, end_ns = sampled_life(trainers[process], look.reader.info, life.first_ns, life.last_ns)
            life.lived_ns = max(end_ns - max(start_ns, look.began_ns), 0)
            life.beyond_ns = max((life.last_ns or 0) - end_ns, 0)

    def _coverage(self) -> float:
        lived_ns = self._ended_lived_ns + sum(life.lived_ns for life in self._lives.values())
        covered_ns = self._ended_covered_ns + sum(life.inside_ns for life in self._lives.values())
        return covered_ns / lived_ns if lived_ns else math.nan


class _Life:
    """A training process: how much of it was sampled, without when, as a run may take weeks."""

    def __init__(self) -> None:
        self.covered_ns = self.lived_ns = self.beyond_ns = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    @property
    def inside_ns(self) -> int:
        """How much of its life was sampled: a recording may end after its process."""
        return min(self.covered_ns - self.beyond_ns, self.lived_ns)

    def cover(self, row: RecordingRow) -> None:
        """Count a recording."""
        self.first_ns = row.start_ns if self.first_ns is None else self.first_ns
        before_ns = row.start_ns if self.last_ns is None else self.last_ns
        self.covered_ns += max(row.end_ns - max(row.start_ns, before_ns), 0)
        self.last_ns = max(before_ns, row.end_ns)
