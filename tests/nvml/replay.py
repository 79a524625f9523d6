"""Turns a run that was recorded with a GPU into a scenario of the fake library: python replay.py RUN > scenario.csv.

Samples of utilization keep their times. Times count from the start of the run. A reading that is a mean since the one
before (GPM, throughput) holds from that one on; the others hold until the next.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.gpm import METRICS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, SeriesRow

Row = tuple[float, str, str, str | int, str | float]
GAUGES = (
    "memory_used_bytes",
    "memory_total_bytes",
    "power_watts",
    "power_limit_watts",
    "temperature_celsius",
    "sm_clock_hz",
    "memory_clock_hz",
    "throttle_reasons_mask",
    "ecc_corrected_count",
    "ecc_uncorrected_count",
)
_BY_PROCESS = {"gpu_process_memory_bytes": "process_memory_bytes", "gpu_process_sm_share": "process_sm_share"}
_BY_METRIC = {name: (number, factor) for number, (name, factor) in METRICS.items()}


def rows_of(reader: RunReader) -> Iterator[Row]:
    """Yield the rows of a scenario."""
    start_ns = reader.info.started_ns
    yield 0, "", "start_unix_s", "", start_ns / SECOND_NS
    for device in reader.devices():
        yield 0, device.name, "model", "", device.model
        yield 0, device.name, "uuid", "", device.uuid
    for series in reader.series.values():
        if series.device is not None:
            points = reader.points(series.id)
            yield from (
                (round((at_ns - start_ns) / SECOND_NS, 6), *rest) for at_ns, *rest in _rows(series, points, reader)
            )


def _rows(
    series: SeriesRow, points: list[PointRow], reader: RunReader
) -> Iterator[tuple[int, str, str, str | int, float]]:
    """Yield the rows of one series, with times of the run."""
    device = series.device or ""
    if series.name in _BY_PROCESS and series.process is not None:
        pid = reader.processes[series.process].pid
        yield from ((point.at_ns, device, _BY_PROCESS[series.name], pid, point.value) for point in points)
    elif series.name == "gpu_utilization_share":
        yield from ((point.at_ns, device, "utilization_sample_share", "", point.value) for point in points)
    elif series.name in _BY_METRIC:
        number, factor = _BY_METRIC[series.name]
        for before, after in pairwise(points):
            yield before.at_ns, device, "gpm", number, after.value / factor
    elif series.name.removeprefix("gpu_") in GAUGES:
        name = series.name.removeprefix("gpu_")
        yield from ((point.at_ns, device, name, "", point.value) for point in points)


def main() -> None:
    """Write the scenario to stdout."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("at_s", "device", "name", "key", "value"))
    with RunReader(Path(sys.argv[1])) as reader:
        writer.writerows(rows_of(reader))


if __name__ == "__main__":
    main()
