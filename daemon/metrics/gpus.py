"""How busy and how full each GPU of the run is."""

from __future__ import annotations

import math
from collections.abc import Iterator

from profd.daemon.metrics.catalog import GPU_BUSY_SECONDS, GPU_MEMORY_TOTAL, GPU_MEMORY_USED, GPU_UTILIZATION, Sample
from profd.daemon.metrics.integral import Integral
from profd.daemon.metrics.look import Look
from profd.daemon.store.rows import SeriesRow
from profd.daemon.store.sums.held import UTILIZATION

MEMORY_USED = "gpu_memory_used_bytes"
MEMORY_TOTAL = "gpu_memory_total_bytes"
_PREFIX = "gpu"


class Gpus:
    """The GPUs of one run; a device that was read stays."""

    def __init__(self) -> None:
        self._busy: dict[str, Integral] = {}

    def take(self, look: Look) -> Iterator[Sample]:
        """Take in the new readings of utilization."""
        for series in look.of_name(UTILIZATION):
            if series.process is None and series.device is not None:
                yield from self._take(look, series, series.device)

    def _take(self, look: Look, series: SeriesRow, device: str) -> Iterator[Sample]:
        busy = self._busy.setdefault(device, Integral(look.began_ns))
        busy.add(look.reader.points(series.id, busy.newest_ns + 1))
        labels = (look.run, device.removeprefix(_PREFIX))
        yield Sample(GPU_UTILIZATION, labels, _known(busy.mean(look.reader.info.end_ns)))
        yield Sample(GPU_BUSY_SECONDS, labels, busy.total_s)
        yield Sample(GPU_MEMORY_USED, labels, _known(look.value(MEMORY_USED, device)))
        yield Sample(GPU_MEMORY_TOTAL, labels, _known(look.value(MEMORY_TOTAL, device)))


def _known(value: float | None) -> float:
    return math.nan if value is None else value
