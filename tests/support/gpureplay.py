"""Turns a run that was recorded with a GPU into a scenario of the fake driver: python tests/support/gpureplay.py RUN.

Samples of utilization keep their times. Times count from the start of the run. A reading that is a mean since the one
before (GPM, throughput) holds from that one on; the others hold until the next.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.gpu.utilization import METRICS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, SeriesRow


class Row(NamedTuple):
    """A line of a scenario; see nvml/README.md."""

    at_s: float
    device: str
    name: str
    key: str
    value: str | float


GAUGES = (
    "memory_used_bytes",
    "memory_total_bytes",
    "power_watts",
    "power_limit_watts",
    "temperature_celsius",
    "sm_clock_hz",
    "memory_clock_hz",
    "pcie_generation",
    "pcie_lanes",
    "throttle_reasons_mask",
    "ecc_corrected_count",
    "ecc_uncorrected_count",
)
_OF_PROCESSES = ("process_memory_bytes", "process_sm_share")
_BY_METRIC = {name: (number, factor) for number, (name, factor) in METRICS.items()}


def rows_of(reader: RunReader) -> Iterator[Row]:
    """Yield the rows of a scenario."""
    start_ns = reader.info.started_ns
    yield Row(0, "", "start_unix_s", "", start_ns / SECOND_NS)
    for device in reader.devices():
        yield Row(0, device.name, "model", "", device.model)
        yield Row(0, device.name, "uuid", "", device.uuid)
    for series in reader.series.values():
        if series.device is not None:
            for at_ns, name, key, value in _values(series, reader.points(series.id), reader):
                yield Row(round((at_ns - start_ns) / SECOND_NS, 6), series.device, name, key, value)


def _values(series: SeriesRow, points: list[PointRow], reader: RunReader) -> Iterator[tuple[int, str, str, float]]:
    """Yield time, name, key and value of one series, with times of the run."""
    name = series.name.removeprefix("gpu_")
    if series.name in _BY_METRIC:
        number, factor = _BY_METRIC[series.name]
        for before, after in pairwise(points):
            yield before.at_ns, "gpm", str(number), after.value / factor
    elif name == "utilization_share":
        yield from ((point.at_ns, "utilization_sample_share", "", point.value) for point in points)
    elif name in _OF_PROCESSES and series.process is not None:
        pid = str(reader.processes[series.process].pid)
        yield from ((point.at_ns, name, pid, point.value) for point in points)
    elif name in GAUGES:
        yield from ((point.at_ns, name, "", point.value) for point in points)


def main() -> None:
    """Write the scenario to stdout."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(Row._fields)
    with RunReader(Path(sys.argv[1])) as reader:
        writer.writerows(rows_of(reader))


if __name__ == "__main__":
    main()
