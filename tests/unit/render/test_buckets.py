"""Samples laid into buckets: every range of whole buckets counts what the run file counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cost.longrun import write_long_run
from support import synthetic

from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.render.buckets import TIME_UNIT_NS, BucketBuilder, TimeBuckets, take_buckets
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(synthetic.write_run(tmp_path / "run.profd", seconds=7)) as reader:
        yield reader


def counted(
    buckets: TimeBuckets, from_bucket: int, to_bucket: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Return stack → samples and stack → ns of all threads in a range of buckets, as the page
    counts them.
    """
    samples: dict[int, int] = {}
    time_ns: dict[int, int] = {}
    for thread in buckets.threads.values():
        columns = zip(
            thread["steps"], thread["stacks"], thread["samples"], thread["times_100us"], strict=True
        )
        bucket = 0
        for step, stack, count, time in columns:
            bucket += step
            if from_bucket <= bucket < to_bucket:
                samples[stack] = samples.get(stack, 0) + count
                time_ns[stack] = time_ns.get(stack, 0) + time * TIME_UNIT_NS
    return samples, time_ns


@pytest.mark.parametrize(("limit", "width_ms"), [(400_000, 10), (100, 1_000), (40, 10_000)])
def test_every_range_of_buckets_counts_what_the_run_file_counts(
    reader: RunReader, limit: int, width_ms: int
) -> None:
    buckets = take_buckets(reader, limit)
    assert buckets.width_ms == width_ms
    if width_ms == 10:  # as narrow as times are true: entries span them
        (main, *_) = (buckets.threads[thread.id] for thread in reader.main_threads())
        assert main["spans"][: len(synthetic.STEP)] == [
            length_ms // 10 for _, length_ms in synthetic.STEP
        ]
    whole = 7_000 // width_ms + 1
    for from_bucket, to_bucket in [
        (0, whole),
        (0, whole // 2),
        (whole // 3, whole // 2),
        (whole - 1, whole),
    ]:
        width_ns = width_ms * MILLISECOND_NS
        selection = Selection(
            from_ns=synthetic.STARTED_NS + from_bucket * width_ns,
            to_ns=synthetic.STARTED_NS + to_bucket * width_ns,
        )
        profile = take_profile(reader, selection)
        assert counted(buckets, from_bucket, to_bucket) == (profile.samples, profile.time_ns)


def test_times_of_a_stack_add_up_though_each_is_less_than_a_unit() -> None:
    laid = BucketBuilder(0, 10_000, 0)
    for bucket in range(1000):
        start_ns = bucket * laid.width_ms * MILLISECOND_NS
        laid.add(
            IntervalRow(
                start_ns=start_ns, thread=1, duration_ns=TIME_UNIT_NS * 4 // 10, stack=1, samples=0
            ),
            [],
        )
    assert sum(laid.columns()[1]["times_100us"]) == 400


LIMIT = 1_500


def entries(buckets: TimeBuckets) -> list[tuple[int, ...]]:
    """Return all entries of all threads: thread, bucket, span, stack, samples and time, and those
    of each part.
    """
    found = []
    for number, thread in buckets.threads.items():
        bucket = 0
        parts = [zip(part["samples"], part["times_100us"], strict=True) for part in thread["parts"]]
        names = ("steps", "spans", "stacks", "samples", "times_100us")
        columns = zip(*(thread[name] for name in names), *parts, strict=True)
        for step, span, stack, samples, time, *inside in columns:
            bucket += step
            assert step >= 0
            found.append(
                (
                    number,
                    bucket,
                    span,
                    stack,
                    samples,
                    time,
                    *(value for pair in inside for value in pair),
                )
            )
    return sorted(found)


def test_buckets_laid_from_sums_hold_what_those_laid_one_by_one_hold(tmp_path: Path) -> None:
    run = write_long_run(tmp_path / "run.profd", seconds=490, ranks=1, workers=1)
    with RunReader(run) as reader:
        quick = take_buckets(reader, LIMIT, one_by_one=0)
        exact = take_buckets(reader, LIMIT, one_by_one=10**9)
        wider = take_buckets(reader, LIMIT // 2, one_by_one=0)
    assert quick.width_ms == exact.width_ms == 60_000
    assert quick.parts == exact.parts == [("gpu-idle",), ("on-cpu",), ("gpu-idle", "on-cpu")]
    assert entries(quick) == entries(exact)
    assert wider.width_ms == 300_000
    assert sum(len(thread["steps"]) for thread in wider.threads.values()) <= LIMIT // 2
    assert sum(entry[4] for entry in entries(wider)) == sum(entry[4] for entry in entries(quick))
