"""What the benchmarks make of their measurements: rows, rates and verdicts."""

from __future__ import annotations

from pathlib import Path

import churn
import pytest
import scaling
import synthetic
import throughput
from scaling import Minute
from steps import Took
from throughput import Round

from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity

SAME = (Took(2.0, 1.9), Took(2.0, 1.9))


def test_free_profiler_stays_below_the_limit() -> None:
    wall, cpu = throughput.rows("blocks", [Round(SAME, SAME)] * 10, 1000)
    assert wall.startswith("| blocks, wall | +0.00 % [+0.00, +0.00] | +0.00 % [+0.00, +0.00] | not distinguishable")
    assert wall.endswith("| yes | 2.0000 ms | 2.0000 ms |")
    assert cpu.startswith("| blocks, CPU |")
    assert cpu.endswith("| yes | 1.9000 ms | 1.9000 ms |")


def test_dear_profiler_is_told_by_the_clock_that_shows_it() -> None:
    wall, cpu = throughput.rows("blocks", [Round((Took(2.2, 1.9), SAME[1]), SAME)] * 10, 1000)
    assert "+10.00 % [+10.00, +10.00]" in wall
    assert "| distinguishable" in wall
    assert "| no | 2.0000 ms | 2.2000 ms |" in wall
    assert "+0.00 %" in cpu


def test_cost_is_below_the_limit_where_its_whole_interval_is() -> None:
    unsure = [Round((Took(2.0 + 0.05 * (number % 2), 1.9), SAME[1]), SAME) for number in range(10)]
    wall, _ = throughput.rows("blocks", unsure, 1000)
    assert "| +1.24 % [+0.3" in wall
    assert "| no |" in wall


def test_blocks_add_up() -> None:
    assert Took(1.0, 0.5) + Took(2.0, 0.25) == Took(3.0, 0.75)


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


def test_churn_misses_who_stays_without_samples(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "run.profd", seconds=2) as run:
        helper = records.ProcessSeen(
            Identity(9999, 1), synthetic.MAIN, ("sleep",), "helper", None, None, None, run.started_ns
        )
        assert run.writer.put(helper)
        run.advance(12)
        with RunReader(run.path) as reader:
            seen = churn.see(reader, 0.1, 0.05)
    assert (seen.long_lived, seen.sampled) == (4, 3)
    assert not seen.is_whole


def test_churn_counts_who_stays_and_who_of_them_has_samples(tmp_path: Path) -> None:
    with RunReader(synthetic.write_run(tmp_path / "run.profd", seconds=20, workers=2)) as reader:
        seen = churn.see(reader, 0.1, 0.05)
    assert seen.main_share == pytest.approx(1.0)
    assert (seen.processes, seen.long_lived, seen.sampled, seen.errors) == (3, 3, 3, 0)
    assert seen.is_whole
    assert not seen._replace(main_share=0.98).is_whole
    assert not seen._replace(sampled=2).is_whole
