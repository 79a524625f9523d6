"""Batches that the main thread makes or waits for: whose remedy it is."""

from __future__ import annotations

import pytest
from support.findingruns import BUSY_WORKER, IDLE_WORKER, LOOP, Case, step
from support.synthetic import DATA_WAIT, TRAIN
from support.training_stacks import DATA, LIBRARY

from profd.daemon.findings.finding import INFO, WARNING
from profd.daemon.findings.loading import idle_workers, load_in_process, saturated_workers
from profd.daemon.findings.overhead import overhead
from profd.daemon.store.records import Frame


def test_workers_that_may_be_saturated_are_not_idle(case: Case) -> None:
    at_the_limit = ((BUSY_WORKER[0][0], 400), (IDLE_WORKER[1][0], 100))
    spans, workers = step((DATA_WAIT, 250)), {1: at_the_limit}
    assert "its only worker is 80 % busy" in case.title(saturated_workers, spans, workers=workers)
    assert case.found(idle_workers, spans, workers=workers) is None


def test_a_wait_that_comes_once_is_no_loss_of_each_step(case: Case) -> None:
    steps = [((DATA_WAIT, 500),)] * 3 + [step((DATA_WAIT, 10))] * 17
    assert case.found(idle_workers, *steps, workers={1: IDLE_WORKER}, seconds=20) is None
    again = [((DATA_WAIT, 500),), *[step((DATA_WAIT, 10))] * 5]
    assert case.severity(idle_workers, *again, workers={1: IDLE_WORKER}) == WARNING


@pytest.mark.parametrize(
    ("decode_ms", "resize_ms", "all_share", "share"), [(150, 50, 40, 30), (360, 120, 96, 72)]
)
def test_what_a_generator_loads_is_found_at_the_line_of_the_loop_with_the_function_that_takes_most(
    case: Case, decode_ms: int, resize_ms: int, all_share: int, share: int
) -> None:
    batches = (*LOOP, Frame("train_epoch", TRAIN, 58), Frame("batches", DATA, 60))
    image = Frame("ImageFile.load", LIBRARY + "PIL/ImageFile.py", 293)
    decode, resize = (
        (*batches, Frame("decode", DATA, 42), image),
        (*batches, Frame("resize", DATA, 50), image),
    )
    found = case.finding(load_in_process, step((decode, decode_ms), (resize, resize_ms)))
    assert (
        f"the main thread makes its batches {all_share} % of the time (train.py:58)" in found.title
    )
    assert (
        f"See whether decode (augment.py:42) can cost less: it takes {share} % of the time."
        in found.remedy
    )


@pytest.mark.parametrize(("ms", "severity"), [(150, INFO), (280, WARNING)])
def test_steps_of_an_environment_are_a_part_of_what_the_program_is_for(
    case: Case, ms: int, severity: str
) -> None:
    steps = case.line("collect", 84, "state, reward = self.vec_env.step(action)", TRAIN)
    found = case.finding(
        load_in_process, step(((*LOOP, steps, Frame("Pendulum.step", DATA, 90)), ms))
    )
    assert found.severity == severity
    assert found.title.startswith(
        f"input-bound: steps of the environment take {ms // 5} % of the time (train.py:84)"
    )
    assert "several environments at once" in found.remedy


def test_sleep_in_a_step_of_an_environment_is_named_as_sleep(case: Case) -> None:
    steps = case.line("collect", 84, "state, reward = self.env.step(action)", TRAIN)
    world = (*LOOP, steps, Frame("Pendulum.step", DATA, 90))
    sleep = (*world, case.line("pace", 91, "time.sleep(self.dt)"))
    observe = (*world, case.line("observe", 92, "state = np.concatenate([self.angle, self.speed])"))
    spans = step((sleep, 100), (observe, 60))
    found = case.finding(overhead, spans)
    assert found.severity == WARNING
    assert found.title.startswith(
        "overhead: polling or sleeping takes 20 % of the time (augment.py:90)"
    )
    assert "steps of the environment take 12 % of the time" in case.title(load_in_process, spans)
