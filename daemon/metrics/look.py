"""One look at a run for metrics, and a series added up over time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics.catalog import Metric, Sample
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, ProcessRow, RecordingRow, SeriesRow
from profd.daemon.store.stepfunction import Step, StepBuilder, StepFunction
from profd.daemon.timerange import TimeRange


class Integral:
    """The sum of a series over time, with its mean over the last seconds."""

    def __init__(self, began_ns: int) -> None:
        self.newest_ns, self._began_ns = began_ns - 1, began_ns
        self.total_s = 0.0
        """The values, each times the seconds for which it holds."""
        self._builder = StepBuilder()
        self._lately: deque[Step] = deque()

    def add(self, points: Sequence[PointRow]) -> None:
        """Take in points that are younger than ``newest_ns``, in order of time."""
        for point in points:
            self.newest_ns = point.at_ns
            for step in self._builder.add(point.at_ns, point.value):
                held_ns = step.end_ns - max(step.start_ns, self._began_ns)
                self.total_s += step.value * held_ns / SECOND_NS
                self._lately.append(step)

    def mean(self, end_ns: int) -> float | None:
        """Return the mean over the last seconds before ``end_ns``.

        None if nothing is known of them.
        """
        time = TimeRange(end_ns - 10 * SECOND_NS, end_ns)
        while self._lately and self._lately[0].end_ns <= time.from_ns:
            self._lately.popleft()
        return StepFunction(list(self._lately), None).over(time).mean


@dataclass(frozen=True, slots=True)
class RunLook:
    """A run at one moment, by a reader that knows what lives.

    ``recordings`` are those written since the look before, ``newest`` the newest value of each of
    ``series``. Counters begin at ``began_ns``, with the run unless it was old already.
    ``integrals`` go on from look to look.
    """

    reader: RunReader
    series: Sequence[SeriesRow]
    began_ns: int
    recordings: tuple[RecordingRow, ...]
    newest: Mapping[int, float]
    integrals: dict[int, Integral]

    def sample(self, metric: Metric, value: float | None, *labels: str) -> Sample:
        """Return a value of this run with the labels beside ``run``.

        None is a value that is not known.
        """
        return Sample(metric, (self.reader.info.id, *labels), math.nan if value is None else value)

    def of_name(self, name: str) -> Iterator[SeriesRow]:
        return (row for row in self.series if row.name == name)

    def value(self, name: str, device: str | None = None) -> float | None:
        """Return the newest value of the host, or of a device; None if there is none."""
        found = (
            row.id for row in self.of_name(name) if row.process is None and row.device == device
        )
        return self.newest.get(next(found, 0))

    def integral(self, series: SeriesRow) -> Integral:
        """Return a series of no process, added up to this look."""
        integral = self.integrals.setdefault(series.id, Integral(self.began_ns))
        integral.add(self.reader.points(series.id, TimeRange(integral.newest_ns + 1)))
        return integral

    def trainers(self) -> Iterator[ProcessRow]:
        """Yield the training processes, those too that have just ended."""
        return (row for row in self.reader.processes.values() if row.is_main)


def rank_of(process: ProcessRow) -> str:
    return "" if process.rank is None else str(process.rank)
