"""Growth and steps among the metrics: what they say, and how seldom they are worked out."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from support.metricvalues import value
from support.synthetic import LiveRun, live_run

from profd.daemon.metrics import catalog
from profd.daemon.metrics.runs import RunWatch
from profd.daemon.metrics.trends import EVERY_S, SHARE, Trends


class Desk:
    """Starts the looks that trends want when the test says so, and tells them the time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.spent_s = 0.0
        self.cost_s = 0.0
        self.waiting: list[Callable[[], None]] = []
        self.trends = Trends(self.waiting.append, lambda: self.now_s, self._spent)

    def watch(self, run: LiveRun) -> RunWatch:
        return RunWatch(run.path, self.trends)

    def work(self) -> int:
        """Look as often as is wanted, and return how often that was."""
        done = len(self.waiting)
        while self.waiting:
            self.waiting.pop()()
        return done

    def _spent(self) -> float:
        self.spent_s += self.cost_s / 2
        return self.spent_s


def test_growth_and_steps_have_values_once_known_by_one_look_at_a_time(tmp_path: Path) -> None:
    desk = Desk()
    with live_run(tmp_path / "a.profd", seconds=59) as run:
        watched = desk.watch(run)
        assert math.isnan(value(watched.take(), catalog.MEMORY_SLOPE, "", "rss"))
        assert desk.work() == 0  # nothing is looked for in the first minute
        run.advance(2)
        watched.take()
        desk.now_s += 1e6
        watched.take()
        assert desk.work() == 1
        samples = watched.take()
    assert value(samples, catalog.MEMORY_SLOPE, "", "rss") == pytest.approx(1e6)
    assert value(samples, catalog.MEMORY_GROWING, "", "rss") == 1
    assert value(samples, catalog.MEMORY_LEFT, "", "rss") == pytest.approx(7000, rel=0.01)
    assert value(samples, catalog.STEP_RATE, "") == pytest.approx(2)


@pytest.mark.parametrize(("cost_s", "rests_s"), [(0.001, EVERY_S), (0.4, 0.2 / SHARE - 0.2)])
def test_a_dear_look_puts_off_the_next(tmp_path: Path, cost_s: float, rests_s: float) -> None:
    desk = Desk()
    desk.cost_s = cost_s
    with live_run(tmp_path / "a.profd", seconds=61) as run:
        watched = desk.watch(run)
        watched.take()
        assert desk.work() == 1
        desk.now_s += rests_s - 0.1
        watched.take()
        assert desk.work() == 0
        desk.now_s += 0.2
        watched.take()
        assert desk.work() == 1


def test_a_run_that_is_gone_is_said_and_looked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk()
    with live_run(tmp_path / "a.profd", seconds=61) as run:
        watched = desk.watch(run)
        watched.take()
        away = run.path.rename(tmp_path / "b.profd")
        desk.work()
        away.rename(run.path)
        desk.now_s += EVERY_S
        watched.take()
        assert "cannot be read" in capsys.readouterr().err
        assert desk.work() == 1
