"""What metrics tell: one value among many samples, and runs whose workers come and go."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics.catalog import Metric, Sample
from profd.daemon.metrics.runs import RunWatch
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity
from support.synthetic import COMMAND, MAIN, WORKER_STEP, LiveRun, recording
from support.waiting import until


def watch(path: Path) -> RunWatch:
    return RunWatch(path)


def value(samples: Iterable[Sample], metric: Metric, *labels: str) -> float:
    """Return the value of a metric of the one run that there is, with these labels beside ``run``."""
    (found,) = [
        sample.value
        for sample in samples
        if sample.metric is metric and sample.labels[1:] == labels
    ]
    return found


def series(samples: Iterable[Sample]) -> set[tuple[str, tuple[str, ...]]]:
    return {(sample.metric.name, sample.labels) for sample in samples}


def churn(run: LiveRun, seconds: int) -> None:
    """Go on with a run whose four workers live for half a second each, and are recorded in it."""
    for _ in range(seconds):
        at_ns = run.started_ns + run.seconds * SECOND_NS
        for number in range(4):
            worker = Identity(100_000 + run.seconds * 4 + number, 5000)
            for record in _life(worker, number + 1, at_ns):
                assert run.writer.put(record), run.writer.failure
        run.advance()


def put(run: LiveRun, record: records.Record, at_ns: int) -> None:
    """Write a record, and return when a reader sees the time that it is of."""
    assert run.writer.put(record), run.writer.failure
    until(lambda: _end_ns(run.path) >= at_ns, "a reader that sees the record")


def _end_ns(path: Path) -> int:
    with RunReader(path) as reader:
        return reader.info.end_ns


def _life(worker: Identity, ordinal: int, at_ns: int) -> list[records.Record]:
    spans = ((worker.pid, "MainThread", True, WORKER_STEP),)
    return [
        records.ProcessSeen(worker, MAIN, COMMAND, "worker", None, ordinal, "3.11.7", at_ns),
        recording(worker, at_ns, spans, duration_ns=SECOND_NS // 2),
        records.PointsTaken(at_ns, (records.Point("rss_bytes", 3e8, worker),)),
        records.ProcessEnded(worker, at_ns + SECOND_NS // 2, exit_code=0),
    ]
