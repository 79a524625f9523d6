"""Growth as a run file tells it: per second, per step, against limits, and what is not worth an
alarm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cost.longrun import describe, run_started
from support import synthetic
from support.memorycurves import MB
from support.present import there
from support.synthetic import MAIN, STARTED_NS, worker

from profd.daemon.analyze.memory import Growth, growth
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database, records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity, Point
from profd.daemon.store.tables import Tables

SECONDS = 60
GB = 1e9


def leak(second: int) -> float:
    return 1e9 + 2 * MB * second


def of(
    name: str,
    value: Callable[[int], float],
    identity: Identity | None = MAIN,
    device: str | None = None,
) -> list[list[Point]]:
    """Return a series with a value each second."""
    return [[Point(name, value(second), identity, device=device)] for second in range(SECONDS)]


def written(
    path: Path,
    *series: Sequence[Sequence[Point]],
    ends: bool = False,
    more: Sequence[records.Record] = (),
) -> RunReader:
    """Write a run of a training process, which ends or not, and a worker with these series, and
    open it.
    """
    found: list[records.Record] = [synthetic.main_process(), *more]
    found.append(records.ProcessSeen(worker(1), MAIN, (), "worker", None, 1, "3.11.7", STARTED_NS))
    for second in range(SECONDS):
        points = tuple(point for one in series for point in one[second])
        found.append(records.PointsTaken(STARTED_NS + second * SECOND_NS, points))
    if ends:
        found.append(records.ProcessEnded(MAIN, STARTED_NS + SECONDS * SECOND_NS, 0))
    (path / "a.profd").unlink(missing_ok=True)
    return RunReader(synthetic.write_records(path / "a.profd", found))


def grown(
    path: Path,
    *series: Sequence[Sequence[Point]],
    ends: bool = False,
    selection: Selection | None = None,
) -> tuple[Growth, ...]:
    with written(path, *series, ends=ends) as reader:
        return growth(reader, selection or Selection())


def only(found: Sequence[Growth]) -> Growth:
    assert len(found) == 1
    return found[0]


def test_a_leak_is_growing_with_slope_interval_and_beginning(tmp_path: Path) -> None:
    steps = of("step_count", lambda second: 4 * second)
    with written(tmp_path, of("rss_bytes", leak), steps) as reader:
        found = only(growth(reader))
        short = only(growth(reader, Selection(to_ns=STARTED_NS + 20 * SECOND_NS)))
        nothing = only(growth(reader, Selection(from_ns=STARTED_NS + 500 * SECOND_NS)))
    assert (found.pid, found.series, found.device, found.verdict) == (
        MAIN.pid,
        "rss_bytes",
        None,
        "growing",
    )
    assert found.slope_bytes_per_s == pytest.approx(2 * MB)
    assert found.interval_bytes_per_s == pytest.approx((2 * MB, 2 * MB))
    assert 0 <= there(found.since_ns) - STARTED_NS <= 25 * SECOND_NS
    assert found.bytes_per_step == pytest.approx(0.5 * MB)
    assert (found.limit, found.time_to_limit_s) == (None, None)
    assert (
        (short.verdict, short.slope_bytes_per_s)
        == (nothing.verdict, nothing.slope_bytes_per_s)
        == ("unknown", None)
    )


def test_a_leak_grows_though_all_is_given_back_as_the_process_ends(tmp_path: Path) -> None:
    """Freeing gigabytes takes seconds, in which the memory is read."""

    def freed(second: int) -> float:
        return leak(second) if second < SECONDS - 3 else 1e9 - 200 * MB * (second - SECONDS + 4)

    found = only(grown(tmp_path, of("rss_bytes", freed), ends=True))
    assert found.verdict == "growing"
    assert found.slope_bytes_per_s == pytest.approx(2 * MB)


@pytest.mark.parametrize("seconds", [4200, 4201, 4202, 4230])
def test_a_leak_of_an_hour_is_seen_by_minutes_whatever_is_given_back_at_its_end(
    tmp_path: Path, seconds: int
) -> None:
    def held(second: int) -> float:
        return (
            1e9 + 0.02 * MB * second
            if second < seconds - 4
            else 0.8e9 - 100 * MB * (second - seconds + 4)
        )

    tables = Tables(database.create(tmp_path / "a.profd"), describe)
    tables.begin(run_started())
    tables.commit([synthetic.main_process()])
    for second in range(seconds):
        points = (Point("rss_bytes", held(second), MAIN),)
        tables.commit([records.PointsTaken(STARTED_NS + second * SECOND_NS, points)])
    tables.commit([records.ProcessEnded(MAIN, STARTED_NS + seconds * SECOND_NS, 0)])
    with RunReader(tmp_path / "a.profd") as reader:
        one = only(growth(reader))
    tables.close()
    assert one.verdict == "growing"
    assert one.slope_bytes_per_s == pytest.approx(0.02 * MB, rel=0.01)


def test_a_fall_that_is_not_at_the_end_of_the_process_counts(tmp_path: Path) -> None:
    def fell(second: int) -> float:
        return leak(second) if second < SECONDS - 3 else 0.5e9

    assert only(grown(tmp_path, of("rss_bytes", fell))).verdict == "steady"


def test_a_leak_by_step_is_found_though_steps_become_slower(tmp_path: Path) -> None:
    def count(second: int) -> int:
        return 4 * second if second < 30 else 120 + (second - 30)

    leaking = of("rss_bytes", lambda second: 1e9 + MB * count(second))
    assert only(grown(tmp_path, leaking)).verdict == "steady", "by time alone it flattens out"
    found = only(grown(tmp_path, leaking, of("step_count", count)))
    assert found.verdict == "growing"
    assert found.bytes_per_step == pytest.approx(MB, rel=0.05)


def test_pages_of_mapped_files_are_a_cache_and_no_leak(tmp_path: Path) -> None:
    mapped = of("rss_file_bytes", lambda second: 1.9 * MB * second)
    assert only(grown(tmp_path, of("rss_bytes", leak), mapped)).verdict == "cached"
    mapped = of("rss_file_bytes", lambda second: 300 * MB + 0.1 * MB * second)
    assert only(grown(tmp_path, of("rss_bytes", leak), mapped)).verdict == "growing"


def test_growth_is_of_each_process_and_series_by_itself(tmp_path: Path) -> None:
    flat = of("rss_bytes", lambda second: 1e9, worker(1))
    other = of("threads", leak)
    on_gpu = of("gpu_process_memory_bytes", leak, device="gpu0")
    with written(
        tmp_path, of("rss_bytes", leak), of("pss_bytes", leak), on_gpu, flat, other
    ) as reader:
        found = growth(reader)
        chosen = growth(reader, Selection(processes=frozenset({found[-1].process})))
    assert [(one.pid, one.series, one.device, one.verdict) for one in found] == [
        (MAIN.pid, "gpu_process_memory_bytes", "gpu0", "growing"),
        (MAIN.pid, "pss_bytes", None, "growing"),
        (MAIN.pid, "rss_bytes", None, "growing"),
        (worker(1).pid, "rss_bytes", None, "steady"),
    ]
    assert [one.pid for one in chosen] == [worker(1).pid]


HOST = (
    of("host_memory_total_bytes", lambda _: 16 * GB, None),
    of("host_memory_used_bytes", lambda _: 6 * GB, None),
)


def test_time_to_the_limit_of_the_host_is_by_all_that_grow(tmp_path: Path) -> None:
    found = only(grown(tmp_path, *HOST, of("rss_bytes", leak)))
    limit = there(found.limit)
    assert (limit.kind, limit.left_bytes) == ("host", 10 * GB)
    assert found.time_to_limit_s == pytest.approx(5000)
    both = grown(tmp_path, *HOST, of("rss_bytes", leak), of("rss_bytes", leak, worker(1)))
    assert [one.time_to_limit_s for one in both] == [pytest.approx(2500)] * 2


def test_the_tightest_limit_counts(tmp_path: Path) -> None:
    limit = of("cgroup_memory_limit_bytes", lambda _: 3 * GB, MAIN, "/job")
    used = of("cgroup_memory_working_set_bytes", lambda second: leak(second), None, "/job")
    both = grown(
        tmp_path, *HOST, limit, used, of("rss_bytes", leak), of("rss_bytes", leak, worker(1))
    )
    found = {one.pid: there(one.limit) for one in both}
    of_main, of_worker = found[MAIN.pid], found[worker(1).pid]
    assert (of_main.kind, of_main.name) == ("cgroup", "/job")
    assert of_main.left_bytes == 3 * GB - leak(SECONDS - 1)
    assert of_worker.kind == "host", "it is in no group with a limit"


def test_memory_of_a_gpu_ends_with_that_of_the_device(tmp_path: Path) -> None:
    gpu = (
        of("gpu_memory_total_bytes", lambda _: 80 * GB, None, "gpu0"),
        of("gpu_memory_used_bytes", lambda _: 60 * GB, None, "gpu0"),
        of("gpu_memory_used_bytes", lambda _: 79 * GB, None, "gpu1"),
    )
    limit = there(
        only(
            grown(tmp_path, *HOST, *gpu, of("gpu_process_memory_bytes", leak, device="gpu0"))
        ).limit
    )
    assert (limit.kind, limit.name, limit.left_bytes) == ("gpu", "gpu0", 20 * GB)


def test_limits_are_as_of_the_end_of_the_selection(tmp_path: Path) -> None:
    used = of("host_memory_used_bytes", lambda second: second * MB, None)
    early = Selection(to_ns=STARTED_NS + 50 * SECOND_NS)
    found = only(grown(tmp_path, HOST[0], used, of("rss_bytes", leak), selection=early))
    assert there(found.limit).used_bytes == 50 * MB
