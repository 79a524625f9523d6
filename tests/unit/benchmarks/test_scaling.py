"""Rates and sizes of recordings with ever more processes."""

from __future__ import annotations

from pathlib import Path

import scaling
from scaling import Minute
from support import synthetic


def test_bytes_an_hour_leave_the_first_minute_out() -> None:
    minutes = [Minute(0.05, size, 70_000_000) for size in (5_000_000, 5_100_000, 5_300_000)]
    assert scaling.bytes_per_hour(minutes, 60.0) == 300_000 * 30


def test_size_of_a_live_run_counts_what_only_its_log_holds(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "run.profd", seconds=2) as run:
        before = scaling.database_bytes(run.path)
        run.advance(20)
        assert scaling.database_bytes(run.path) > before
        assert scaling.database_bytes(run.path) > run.path.stat().st_size


def test_rate_is_that_of_the_main_process_once_settled(tmp_path: Path) -> None:
    assert scaling.mean_rate_hz(synthetic.write_run(tmp_path / "run.profd"), settled_s=10) == synthetic.RATE_HZ
