"""All metrics of one run, as of its newest records."""

from __future__ import annotations

from pathlib import Path

from profd.daemon import processes
from profd.daemon.analyze.coverage import COST_SERIES
from profd.daemon.analyze.steps.steps import COUNT_SERIES
from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics import memory, quality
from profd.daemon.metrics.catalog import Sample
from profd.daemon.metrics.findings import Findings
from profd.daemon.metrics.gpus import MEMORY_TOTAL, MEMORY_USED, Gpus
from profd.daemon.metrics.look import Look, Part
from profd.daemon.metrics.phases import phase_parts
from profd.daemon.metrics.processes import RSS, Processes
from profd.daemon.metrics.steps import StepCounts
from profd.daemon.metrics.trends import Trends
from profd.daemon.store.entities import Entities
from profd.daemon.store.reader import RunReader
from profd.daemon.store.sums.held import MEMORY_OF_PROCESS, UTILIZATION

SERIES = (
    COUNT_SERIES,
    RSS,
    MEMORY_OF_PROCESS,
    UTILIZATION,
    MEMORY_USED,
    MEMORY_TOTAL,
    memory.HOST_USED,
    memory.HOST_TOTAL,
    memory.CGROUP_USED,
    memory.CGROUP_LIMIT,
    COST_SERIES,
    quality.MEMORY,
)
OLD_NS = 600 * SECOND_NS
"""Of a run that is older when it is first looked at, counters begin so long ago: reading it all would take long."""


class RunWatch:
    """A run that is followed; belongs to one thread at a time."""

    def __init__(self, path: Path, trends: Trends | None = None) -> None:
        """Follow the run at ``path``; raises RunUnreadable where it is none."""
        self._path = path
        self._living = Entities(SERIES)
        with RunReader(path, self._living) as reader:
            self._info = info = reader.info
        self._began_ns = max(info.started_ns, info.end_ns - OLD_NS)
        self._last_recording = 0
        trends = trends or Trends()
        self._parts: tuple[Part, ...] = (
            quality.State(),
            StepCounts(trends),
            *phase_parts(self._living),
            Gpus(),
            Processes(),
            memory.SharedMemory(),
            quality.Quality(),
            quality.SelfCost(),
            Findings(),
            trends,
        )

    @property
    def run(self) -> str:
        """The id of the run."""
        return self._info.id

    def is_recorded(self) -> bool:
        """Say whether the run goes on; costs no look at its file."""
        return self._info.state == "live" and processes.is_running(*self._info.recorder)

    def take(self) -> list[Sample]:
        """Return the values of all metrics now, each once; raises RunUnreadable."""
        # Open for this look alone: a recorder that closes its run finds nobody in the file.
        with RunReader(self._path, self._living) as reader, reader.one_moment():
            self._info = reader.info
            look = self._look(reader)
            # Two processes may say that they are one rank: the younger one is believed, as one series has one value.
            samples = {sample[:2]: sample for part in self._parts for sample in part.take(look)}
        return list(samples.values())

    def _look(self, reader: RunReader) -> Look:
        recordings = tuple(reader.recordings_after(self._last_recording, from_ns=self._began_ns))
        self._last_recording = max((row.id for row in recordings), default=self._last_recording)
        return Look(reader, self._began_ns, recordings, reader.newest_values(reader.series))
