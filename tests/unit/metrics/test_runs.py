"""Which runs are told of: those that are recorded, as they come and go."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.metricvalues import churn, put, series, value, watch
from support.synthetic import BACKWARD, COMMAND, MAIN, PHASE_SHARES, live_run, recording, write_run

from profd.daemon.analyze.phases import PHASES
from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics import catalog
from profd.daemon.metrics.catalog import Sample
from profd.daemon.metrics.runs import FRESH_S, Folder, Runs
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    HangEnded,
    HangFound,
    HangReport,
    Identity,
    Point,
    PointsTaken,
    ProcessEnded,
    ProcessSeen,
)


class Ticks:
    """A clock on which everything that is asked is asked anew."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.step_s = FRESH_S

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def names(runs: Runs) -> list[str]:
    """Return the runs that are told of, a name for each."""
    return [sample.labels[0] for sample in runs.samples() if sample.metric is catalog.RUN_INFO]


def test_a_folder_has_its_live_runs_as_they_come_and_go(tmp_path: Path) -> None:
    write_run(tmp_path / "old.profd")
    runs = Runs(Folder(tmp_path), Ticks())
    assert names(runs) == []

    with live_run(tmp_path / "a.profd") as first:
        assert len(names(runs)) == 1
        with live_run(tmp_path / "b.profd"):
            assert len(names(runs)) == 2
        first.end()
        assert len(names(runs)) == 2  # of the one that ended its last values
        assert len(names(runs)) == 1


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert names(Runs(Folder(tmp_path / "none"), Ticks())) == []


def test_a_damaged_file_hides_no_run(tmp_path: Path) -> None:
    (tmp_path / "damaged.profd").write_bytes(b"SQLite format 3\0" + bytes(200))
    with live_run(tmp_path / "a.profd"):
        runs = Runs(Folder(tmp_path), Ticks())
        assert len(names(runs)) == 1
        assert len(names(runs)) == 1


def test_a_run_whose_file_is_gone_is_told_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with live_run(tmp_path / "a.profd") as run:
        runs = Runs(lambda: (run.path,), Ticks())
        assert len(names(runs)) == 1
        away = run.path.rename(tmp_path / "b")
        assert names(runs) == []
        assert "a.profd cannot be read" in capsys.readouterr().err
        away.rename(run.path)


def test_who_asks_again_at_once_is_told_the_same(tmp_path: Path) -> None:
    ticks = Ticks()
    with live_run(tmp_path / "a.profd") as run:
        runs = Runs(lambda: (run.path,), ticks)
        ticks.step_s = 0.0
        first = runs.samples()
        run.advance()
        assert runs.samples() is first
        ticks.step_s = FRESH_S
        assert runs.samples() is not first


def test_there_is_any_until_it_ends(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd") as run:
        runs = Runs(lambda: (run.path,))
        assert not runs.is_any()
        runs.look_for_runs()
        assert runs.is_any()
        run.end()
        runs.samples()
    assert not runs.is_any()


def phases(samples: list[Sample]) -> dict[str, float]:
    """Return the seconds of each phase that has any."""
    found = {sample.labels[2]: sample.value for sample in samples if sample.metric is catalog.PHASE_SECONDS}
    assert found.keys() == {phase.name for phase in PHASES}
    return {phase: seconds for phase, seconds in found.items() if seconds}


def test_seconds_by_phase_are_those_of_the_run_however_often_it_is_looked_at(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=4) as run:
        watched = watch(run.path)
        for _ in range(3):
            watched.take()
            watched.take()
            run.advance(2)
        found = phases(watched.take())

    assert found == pytest.approx({phase: 10 * share for phase, share in PHASE_SHARES.items()})


def test_counters_are_those_of_the_summary(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=20) as run:
        watched = watch(run.path)
        watched.take()
        run.advance(10)
        samples = watched.take()
        with RunReader(run.path) as reader:
            summary = summarize(reader)

    assert value(samples, catalog.COVERAGE) == summary.coverage
    assert value(samples, catalog.TORN) == summary.torn_share
    assert value(samples, catalog.TORN_SAMPLES) == 60
    assert value(samples, catalog.SELF_CPU) == pytest.approx(30 * 0.041)


def test_a_recording_that_ends_after_its_process_covers_no_more_than_its_life(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=4) as run:
        ended_ns = run.started_ns + 7 * SECOND_NS // 2
        put(run, ProcessEnded(MAIN, ended_ns, exit_code=0), ended_ns)
        samples = watch(run.path).take()
        with RunReader(run.path) as reader:
            assert value(samples, catalog.COVERAGE) == summarize(reader).coverage == 1.0


def test_what_a_recording_covers_after_its_process_makes_up_for_no_gap(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=4) as run:
        run.seconds += 1  # nothing is recorded
        run.advance()
        ended_ns = run.started_ns + 11 * SECOND_NS // 2
        put(run, ProcessEnded(MAIN, ended_ns, exit_code=0), ended_ns)
        samples = watch(run.path).take()
        with RunReader(run.path) as reader:
            assert value(samples, catalog.COVERAGE) == summarize(reader).coverage == pytest.approx(4.5 / 5.5)


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
    assert value(samples, catalog.PHASE_SECONDS, "", "backward") == pytest.approx(4 * PHASE_SHARES["backward"])


def test_series_stay_the_same_while_workers_come_and_go(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=5, workers=0) as run:
        churn(run, 2)
        watched = watch(run.path)
        first = series(watched.take())
        for _ in range(4):
            churn(run, 20)
            last = watched.take()

    assert series(last) == first
    assert value(last, catalog.PROCESSES, "worker") == 0
    assert value(last, catalog.SAMPLES) > 80 * 4 * 50


def test_nothing_is_remembered_of_workers_that_are_gone(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=5, workers=0) as run:
        watched = watch(run.path)
        sizes = []
        for _ in range(3):
            churn(run, 40)
            watched.take()
            known = watched._living
            sizes.append((len(known.processes), len(known.series), len(known.threads), len(known.stacks)))

    assert sizes == [sizes[0]] * 3
    assert sizes[0][0] == 1


def test_memory_is_that_of_living_processes_by_role(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=3, workers=2) as run:
        samples = watch(run.path).take()

    assert value(samples, catalog.PROCESS_MEMORY, "", "main") == 902e6
    assert value(samples, catalog.PROCESS_MEMORY, "", "worker") == 600e6
    assert value(samples, catalog.HOST_MEMORY_USED) == 9e9
    assert value(samples, catalog.PROCESSES, "worker") == 2


def test_steps_are_the_newest_count_and_their_rate(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=4) as run:
        watched = watch(run.path)
        for count in range(20):
            run.writer.put(PointsTaken(run.started_ns + count * SECOND_NS, (Point("step_count", 3.0 * count, MAIN),)))
        run.advance(20)
        samples = watched.take()

    assert value(samples, catalog.STEPS, "") == 57
    assert value(samples, catalog.STEP_RATE, "") == 3


def test_hangs_are_counted_and_end(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=4) as run:
        watched = watch(run.path)
        at_ns = run.started_ns + SECOND_NS
        run.writer.put(HangFound(at_ns, run.started_ns, "waits for a queue", HangReport("queue", ())))
        run.advance()
        hanging = watched.take()
        run.writer.put(HangEnded(at_ns + SECOND_NS, at_ns))
        run.advance()
        over = watched.take()

    assert (value(hanging, catalog.HANGS), value(hanging, catalog.HANGING)) == (1, 1)
    assert (value(over, catalog.HANGS), value(over, catalog.HANGING)) == (1, 0)


def test_the_control_group_that_is_nearest_to_its_limit_is_told_without_its_path(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=2) as run:
        points = [
            Point("cgroup_memory_limit_bytes", 8e9, MAIN, device="/slice"),
            Point("cgroup_memory_limit_bytes", 4e9, MAIN, device="/slice/job"),
            Point("cgroup_memory_working_set_bytes", 7e9, device="/slice"),
            Point("cgroup_memory_working_set_bytes", 1e9, device="/slice/job"),
        ]
        run.writer.put(PointsTaken(run.started_ns, tuple(points)))
        run.advance()
        samples = watch(run.path).take()

    assert value(samples, catalog.CGROUP_MEMORY_USED) == 7e9
    assert value(samples, catalog.CGROUP_MEMORY_LIMIT) == 8e9
    assert not any("slice" in label for sample in samples for label in sample.labels)


def test_a_run_that_nobody_records_is_not_live(tmp_path: Path) -> None:
    assert not watch(write_run(tmp_path / "a.profd")).is_recorded()
