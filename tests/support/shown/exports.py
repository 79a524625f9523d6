"""The numbers of what programs read: exported stacks and tables, metrics, and the JSON of a fleet
of one run.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

from profd.daemon.metrics import catalog
from profd.daemon.metrics import runs as metrics_watch
from support.metricvalues import watch
from support.shown.numbers import Numbers, command, exact, function

_EVER_NS = 10**20


def of_exports(path: Path, folder: Path) -> Numbers:
    """Yield the numbers of the collapsed stacks and of the CSV files."""
    yield from _of_stacks(command("export", str(path), "--format", "collapsed").splitlines())
    command("export", str(path), "--format", "csv", "-o", str(folder))
    yield from _of_tables(
        *(list(csv.DictReader((folder / f"{name}.csv").open())) for name in _TABLES)
    )


_TABLES = ("samples", "processes", "series", "events")
_Rows = list[dict[str, str]]


def _of_stacks(lines: Iterable[str]) -> Numbers:
    own: Counter[str] = Counter()
    for line in lines:
        stack, _, samples = line.rpartition(" ")
        name, _, place = stack.rpartition(";")[2].rpartition(" (")
        own[function(name, place.rstrip(")"))] += int(samples)
    yield exact("samples", "run", own.total())
    yield from (exact("self samples of a function", of, samples) for of, samples in own.items())


def _of_tables(samples: _Rows, processes: _Rows, series: _Rows, events: _Rows) -> Numbers:
    yield exact("samples of all threads", "run", sum(int(row["samples"]) for row in samples))
    yield exact("processes", "run", len(processes))
    yield exact("workers", "run", sum(row["role"] == "worker" for row in processes))
    yield exact("events", "run", len(events))
    of_process = Counter({row["pid"]: 0 for row in samples})
    for row in samples:
        of_process[row["pid"]] += int(row["samples"]) * (row["thread"] == "MainThread")
    yield from (exact("samples of a process", pid, count) for pid, count in of_process.items())
    last = {row["pid"]: float(row["value"]) for row in series if row["name"] == "rss_bytes"}
    yield from (exact("memory of a process", pid, value) for pid, value in last.items())
    for row in processes:
        if row["exit_code"]:
            yield exact("exit code of a process", row["pid"], int(row["exit_code"]))


def of_metrics(path: Path) -> Numbers:
    """Yield the numbers of the metrics, looked at once at the end of the run."""
    with mock.patch.object(metrics_watch, "OLD_NS", _EVER_NS):
        found = {(sample.metric, sample.labels[1:]): sample.value for sample in watch(path).take()}
    for metric, kind in ((catalog.COVERAGE, "coverage"), (catalog.TORN, "torn share")):
        if not math.isnan(value := found.get((metric, ()), math.nan)):
            yield exact(kind, "run", value)
    yield exact(
        "samples of all threads",
        "run",
        found[catalog.SAMPLES, ()] - found[catalog.TORN_SAMPLES, ()],
    )
    for (metric, labels), value in found.items():
        if metric is catalog.PROCESS_MEMORY:
            yield exact("memory of a role", f"{labels[1]} {labels[0]}", value)
        if metric is catalog.GPU_MEMORY_TOTAL and not math.isnan(value):
            yield exact("GPU memory", f"gpu{labels[0]}", value)
    times = {
        labels: value
        for (metric, labels), value in found.items()
        if metric is catalog.PHASE_SECONDS and value
    }
    if len({rank for rank, _ in times}) == 1:
        yield from (
            exact("share of a phase", phase, value / sum(times.values()))
            for (_, phase), value in times.items()
        )


def of_fleet(path: Path, folder: Path) -> Numbers:
    """Yield the numbers of the report of a fleet in which the run is the only one."""
    command("export", str(path), "--format", "parquet", "--to", str(folder))
    said = json.loads(command("fleet", str(folder), "--json"))
    for row in said["phases"]:
        yield exact(
            "share of a phase", row["phase"], row["hours"]["ranks"] / said["hours"]["ranks"]
        )
