"""The readings of a range of time, as a run file gives them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from support.synthetic import STARTED_NS, run_started
from support.training_stacks import describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken
from profd.daemon.store.writer import RunWriter

FIRST_S, LAST_S = 100, 700


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunReader]:
    """Give a run with one series, whose readings are 1 to 40 seconds apart."""
    path = tmp_path_factory.mktemp("points") / "run.profd"
    writer, chance, at_s = RunWriter(path, run_started(), describe), random.Random(5), FIRST_S
    while at_s < LAST_S:
        points = (Point("host_cpu_share", chance.random()),)
        assert writer.put(PointsTaken(STARTED_NS + at_s * SECOND_NS, points))
        at_s += chance.choice((1, 1, 1, 2, 5, 40))
    writer.close()
    with RunReader(path) as reader:
        yield reader


@pytest.mark.parametrize(
    ("from_s", "to_s"),
    [(0, FIRST_S - 1), (0, FIRST_S), (FIRST_S - 1, 800), *((at, at + 7) for at in range(90, 720, 9))],
)
def test_a_range_says_of_its_time_what_all_of_the_run_says(reader: RunReader, from_s: int, to_s: int) -> None:
    series = next(iter(reader.series))
    from_ns, to_ns = STARTED_NS + from_s * SECOND_NS, STARTED_NS + to_s * SECOND_NS
    assert reader.steps(series, from_ns, to_ns).over(from_ns, to_ns) == reader.steps(series).over(from_ns, to_ns)
