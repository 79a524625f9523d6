"""Which runs have metrics: those that are recorded, as they come and go."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from support.metricvalues import churn, put, series, value, watch
from support.procfiles import files_of
from support.synthetic import BACKWARD, COMMAND, MAIN, PHASE_SHARES, live_run, recording, write_run

from profd.daemon.analyze.phases import MOST_STACKS, PHASES
from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.metrics import catalog
from profd.daemon.metrics.catalog import Sample
from profd.daemon.metrics.runs import FRESH_S, Runs
from profd.daemon.render.summary import summarize
from profd.daemon.store import records
from profd.daemon.store.entities import LINGER_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity, Point, PointsTaken, ProcessEnded, ProcessSeen


class Ticks:
    """A clock on which everything that is asked is asked anew."""

    now_s, step_s = 0.0, FRESH_S

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def names(runs: Runs) -> list[str]:
    return [sample.labels[0] for sample in runs.samples() if sample.metric is catalog.RUN_INFO]


def test_a_folder_has_its_live_runs_as_they_come_and_go(tmp_path: Path) -> None:
    assert names(Runs(lambda: (tmp_path / "none").glob("*.profd"), Ticks())) == []
    assert not watch(write_run(tmp_path / "old.profd")).is_recorded()
    (tmp_path / "damaged.profd").write_bytes(b"SQLite format 3\0" + bytes(200))  # it hides no run
    runs = Runs(lambda: tmp_path.glob("*.profd"), Ticks())
    assert names(runs) == []
    with live_run(tmp_path / "a.profd") as first:
        assert len(names(runs)) == 1
        with live_run(tmp_path / "b.profd"):
            assert len(names(runs)) == 2
        first.end()
        assert len(names(runs)) == 2  # of the one that ended its last values
        assert len(names(runs)) == 1


def test_an_exporter_that_the_kernel_does_not_show_answers_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def memory() -> float | None:
        samples = Runs(lambda: ()).samples()
        return next(one.value for one in samples if one.metric is catalog.EXPORTER_MEMORY)

    assert (memory() or 0) > 1e6
    files_of(monkeypatch)
    assert memory() == 0


def test_scrapes_close_together_share_samples_and_a_run_stays_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = Ticks()
    with live_run(tmp_path / "a.profd") as run:
        runs = Runs(lambda: (run.path,), ticks)
        assert not runs.is_any()
        runs.look_for_runs()
        assert runs.is_any()
        ticks.step_s = 0.0
        first = runs.samples()
        run.advance()
        assert runs.samples() is first
        ticks.step_s = FRESH_S
        assert runs.samples() is not first
        others = Runs(lambda: (run.path,), Ticks())
        assert len(names(others)) == 1
        away = run.path.rename(tmp_path / "b")  # its file is gone
        assert names(others) == []
        assert "a.profd cannot be read" in capsys.readouterr().err
        away.rename(run.path)
        run.end()
        runs.samples()
    assert not runs.is_any()


def phases(samples: list[Sample]) -> dict[str, float]:
    """Return the seconds of each phase that has any."""
    found = {
        sample.labels[2]: sample.value
        for sample in samples
        if sample.metric is catalog.PHASE_SECONDS
    }
    assert found.keys() == {phase.name for phase in PHASES}
    return {phase: seconds for phase, seconds in found.items() if seconds}


@pytest.mark.parametrize("most_stacks", [MOST_STACKS, 0])
def test_counters_are_those_of_the_summary_however_often_a_run_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_stacks: int
) -> None:
    monkeypatch.setattr("profd.daemon.analyze.phases.MOST_STACKS", most_stacks)
    with live_run(tmp_path / "a.profd", seconds=20) as run:
        watched = watch(run.path)
        for _ in range(2):
            watched.take()
            watched.take()
            run.advance(5)
        samples = watched.take()
        with RunReader(run.path) as reader:
            summary = summarize(reader)
    assert phases(samples) == pytest.approx(
        {phase: 30 * share for phase, share in PHASE_SHARES.items()}
    )
    assert value(samples, catalog.COVERAGE) == summary.coverage
    assert value(samples, catalog.TORN) == summary.torn_share
    assert value(samples, catalog.TORN_SAMPLES) == 60
    assert value(samples, catalog.SELF_CPU) == pytest.approx(30 * 0.041)
    # Memory is that of living processes by role.
    assert value(samples, catalog.PROCESS_MEMORY, "", "main") == 929e6
    assert value(samples, catalog.PROCESS_MEMORY, "", "worker") == 600e6
    assert value(samples, catalog.HOST_MEMORY_USED) == 9e9
    assert value(samples, catalog.PROCESSES, "worker") == 2


@pytest.mark.parametrize(("gap_s", "covered"), [(0, 1.0), (1, 4.5 / 5.5)])
def test_what_is_covered_after_a_process_has_ended_counts_for_nothing(
    tmp_path: Path, gap_s: int, covered: float
) -> None:
    with live_run(tmp_path / "a.profd", seconds=4) as run:
        run.seconds += gap_s  # nothing is recorded
        run.advance()
        ended_ns = run.started_ns + (2 * run.seconds - 1) * SECOND_NS // 2
        put(run, ProcessEnded(MAIN, ended_ns, exit_code=0), ended_ns)
        samples = watch(run.path).take()
        with RunReader(run.path) as reader:
            assert (
                value(samples, catalog.COVERAGE)
                == summarize(reader).coverage
                == pytest.approx(covered)
            )


def test_a_recording_that_comes_after_its_process_has_ended_counts(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=4) as run:
        watched = watch(run.path)
        ended_ns = run.started_ns + 9 * SECOND_NS // 2
        put(run, ProcessEnded(MAIN, ended_ns, exit_code=0), ended_ns)
        before = watched.take()
        run.advance()
        assert sum(phases(before).values()) == pytest.approx(4)
        assert value(before, catalog.PROCESSES, "main") == 0
        assert sum(phases(watched.take()).values()) == pytest.approx(5)


def test_ranks_that_are_recorded_at_different_times_lose_nothing(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=2) as run:
        other = Identity(6000, 3000)
        watched = watch(run.path)
        for second in (0, 1):
            watched.take()
            at_ns = run.started_ns + second * SECOND_NS
            late = recording(other, at_ns, ((other.pid, "MainThread", True, ((BACKWARD, 1000),)),))
            put(run, ProcessSeen(other, None, COMMAND, "main", 1, None, "3.11.7", at_ns), at_ns)
            assert run.writer.put(late)
            run.advance()
        samples = watched.take()
    assert value(samples, catalog.PHASE_SECONDS, "1", "backward") == pytest.approx(2)
    assert value(samples, catalog.PHASE_SECONDS, "", "backward") == pytest.approx(
        4 * PHASE_SHARES["backward"]
    )


def test_the_steps_of_a_rank_stay_when_its_process_has_ended_and_is_forgotten(
    tmp_path: Path,
) -> None:
    with live_run(tmp_path / "a.profd", seconds=4) as run:
        other, began_ns = Identity(6000, 3000), run.started_ns
        put(run, ProcessSeen(other, None, COMMAND, "main", 1, None, "3.11.7", began_ns), began_ns)
        assert run.writer.put(PointsTaken(began_ns + 1, (Point("step_count", 7.0, other),)))
        run.advance()
        watched = watch(run.path)
        assert value(watched.take(), catalog.STEPS, "1") == 7
        ended_ns = began_ns + 4 * SECOND_NS
        put(run, ProcessEnded(other, ended_ns, exit_code=0), ended_ns)
        run.advance(LINGER_NS // SECOND_NS + 2)
        assert value(watched.take(), catalog.STEPS, "1") == 7


def test_series_stay_the_same_while_workers_come_and_go(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=5, workers=0) as run:
        churn(run, 2)
        watched = watch(run.path)
        first = series(watched.take())
        sizes = []
        for _ in range(4):
            churn(run, 20)
            last, known = watched.take(), watched._living
            sizes.append((len(known.processes), len(known.threads), len(known.stacks)))
    assert sizes == [(1, *sizes[0][1:])] * 4  # nothing is remembered of workers that are gone
    assert series(last) == first
    assert value(last, catalog.PROCESSES, "worker") == 0
    assert value(last, catalog.SAMPLES) > 80 * 4 * 50


def test_hangs_end_and_steps_and_control_groups_have_values(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=4) as run:
        watched = watch(run.path)
        groups = [
            Point("cgroup_memory_limit_bytes", 8e9, MAIN, device="/slice"),
            Point("cgroup_memory_limit_bytes", 4e9, MAIN, device="/slice/job"),
            Point("cgroup_memory_working_set_bytes", 7e9, device="/slice"),
            Point("cgroup_memory_working_set_bytes", 1e9, device="/slice/job"),
        ]
        run.writer.put(PointsTaken(run.started_ns, tuple(groups)))
        for count in range(20):
            run.writer.put(
                PointsTaken(
                    run.started_ns + count * SECOND_NS, (Point("step_count", 3.0 * count, MAIN),)
                )
            )
        run.advance(20)
        at_ns = run.started_ns + SECOND_NS
        run.writer.put(
            records.HangFound(
                at_ns, run.started_ns, "waits for a queue", records.HangReport("queue", ())
            )
        )
        run.advance()
        hanging = watched.take()
        run.writer.put(records.HangEnded(at_ns + SECOND_NS, at_ns))
        run.advance()
        over = watched.take()
        lost_ns = run.started_ns + 19 * SECOND_NS
        run.writer.put(records.EventHappened(lost_ns, EventKind.STEPS_LOST, "", MAIN))
        run.advance()
        lost = watched.take()
    assert all(math.isnan(value(lost, metric, "")) for metric in (catalog.STEPS, catalog.STEP_RATE))
    assert (value(hanging, catalog.HANGS), value(hanging, catalog.HANGING)) == (1, 1)
    assert (value(over, catalog.HANGS), value(over, catalog.HANGING)) == (1, 0)
    assert (value(hanging, catalog.STEPS, ""), value(hanging, catalog.STEP_RATE, "")) == (57, 3)
    # The values are those of the group that is nearest to its limit, without its path.
    assert (value(over, catalog.CGROUP_MEMORY_USED), value(over, catalog.CGROUP_MEMORY_LIMIT)) == (
        7e9,
        8e9,
    )
    assert not any("slice" in label for sample in over for label in sample.labels)
