"""The verdict on a run in one line."""

from __future__ import annotations

import pytest

from profd.daemon.render.sections import verdict, worked_share

STARTING = {"startup, import": 0.5, "forward": 0.3, "backward": 0.15, "data wait": 0.05}


def test_work_is_a_share_of_the_training_without_its_startup() -> None:
    assert worked_share(STARTING) == pytest.approx(0.9)
    assert worked_share({"forward": 0.3, "optimizer": 0.2, "data wait": 0.5}) == pytest.approx(0.5)
    assert worked_share({"startup, import": 1.0}) == 0


def test_a_healthy_run_that_starts_up_for_long_is_told_so() -> None:
    said = verdict((), STARTING)
    assert said == "· 50 % of the time is startup and import; of the rest 90 % is forward, backward and optimizer"
    assert verdict((), {"forward": 0.3, "data wait": 0.7}) == ""
