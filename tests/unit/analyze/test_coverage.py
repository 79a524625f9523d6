"""How well a run was seen, and what that cost."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from support import synthetic
from support.synthetic import STARTED_NS

from profd.daemon.analyze.coverage import take_lives
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import mean_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken


def test_the_cost_of_starting_counts_for_as_long_as_it_took(tmp_path: Path) -> None:
    # What starting took, in the first tenth of a second; then a tenth of a core for nearly ten.
    points = (
        PointsTaken(STARTED_NS + round(at_s * SECOND_NS), (Point("profd_cpu_cores", cores),))
        for at_s, cores in ((0.1, 1.0), (1.0, 0.1), (10.0, 0.1))
    )
    with RunReader(synthetic.write_records(tmp_path / "run.profd", points)) as reader:
        mean = mean_of_series(reader, "profd_cpu_cores", None, Selection())
    assert mean == pytest.approx((0.1 * 1.0 + 9.9 * 0.1) / 10)


def test_a_run_is_let_go_of_once_its_reader_is(tmp_path: Path) -> None:
    """A daemon sums up run after run in one process."""
    path = tmp_path / "a.profd"
    synthetic.write_run(path, seconds=3)
    with RunReader(path) as reader:
        summarize(reader)
        assert take_lives(reader) is take_lives(reader)
        held = weakref.ref(reader)
    del reader
    gc.collect()
    assert held() is None
