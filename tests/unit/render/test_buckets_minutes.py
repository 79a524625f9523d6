"""Buckets of a long run: laid from the sums by the minute they hold what they would hold laid interval by interval."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from longrun import write_long_run

from profd.daemon.render.buckets import TimeBuckets, take_buckets
from profd.daemon.store.reader import RunReader

EVERYTHING = 10**9
LIMIT = 1_500


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_long_run(tmp_path_factory.mktemp("long") / "run.profd", seconds=490, ranks=1, workers=1)


@pytest.fixture
def reader(path: Path) -> Iterator[RunReader]:
    with RunReader(path) as reader:
        yield reader


def entries(buckets: TimeBuckets) -> list[tuple[int, ...]]:
    """Return all entries of all threads: thread, bucket, span, stack, samples and time, and those of each part."""
    found = []
    for number, thread in buckets.threads.items():
        bucket = 0
        parts = [zip(part["samples"], part["times_100us"], strict=True) for part in thread["parts"]]
        names = ("steps", "spans", "stacks", "samples", "times_100us")
        columns = zip(*(thread[name] for name in names), *parts, strict=True)
        for step, span, stack, samples, time, *inside in columns:
            bucket += step
            assert step >= 0
            found.append((number, bucket, span, stack, samples, time, *(value for pair in inside for value in pair)))
    return sorted(found)


def test_buckets_laid_from_sums_hold_what_those_laid_one_by_one_hold(reader: RunReader) -> None:
    quick = take_buckets(reader, LIMIT, one_by_one=0)
    exact = take_buckets(reader, LIMIT, one_by_one=EVERYTHING)
    assert quick.width_ms == exact.width_ms == 60_000
    assert quick.parts == exact.parts == [("gpu-idle",), ("on-cpu",), ("gpu-idle", "on-cpu")]
    assert entries(quick) == entries(exact)
    buckets = take_buckets(reader, LIMIT // 2, one_by_one=0)
    assert buckets.width_ms == 300_000
    assert sum(len(thread["steps"]) for thread in buckets.threads.values()) <= LIMIT // 2
    minutes = take_buckets(reader, LIMIT, one_by_one=0)
    assert sum(entry[4] for entry in entries(buckets)) == sum(entry[4] for entry in entries(minutes))
