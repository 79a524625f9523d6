"""Batches that the main thread makes or waits for: whose remedy it is."""

from __future__ import annotations

import pytest
from support.findingruns import BUSY_WORKER, IDLE_WORKER, LOOP, Case, step
from support.synthetic import COMMAND, DATA_WAIT, MAIN, STARTED_NS, TRAIN, recording
from support.training_stacks import DATA, LIBRARY

from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.finding import INFO, WARNING
from profd.daemon.findings.loading import environments, idle_workers, load_in_process, saturated_workers
from profd.daemon.findings.overhead import overhead
from profd.daemon.store import records
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


@pytest.mark.parametrize(("decode_ms", "resize_ms", "all_share", "share"), [(150, 50, 40, 30), (360, 120, 96, 72)])
def test_what_a_generator_loads_is_found_at_the_line_of_the_loop_with_the_function_that_takes_most(
    case: Case, decode_ms: int, resize_ms: int, all_share: int, share: int
) -> None:
    batches = (*LOOP, Frame("train_epoch", TRAIN, 58), Frame("batches", DATA, 60))
    image = Frame("ImageFile.load", LIBRARY + "PIL/ImageFile.py", 293)
    decode, resize = (*batches, Frame("decode", DATA, 42), image), (*batches, Frame("resize", DATA, 50), image)
    found = case.finding(load_in_process, step((decode, decode_ms), (resize, resize_ms)))
    assert f"the main thread makes its batches {all_share} % of the time (train.py:58)" in found.title
    assert f"See whether decode (augment.py:42) can cost less: it takes {share} % of the time." in found.remedy


@pytest.mark.parametrize(("ms", "severity"), [(150, INFO), (280, WARNING)])
def test_steps_of_an_environment_are_a_part_of_what_the_program_is_for(case: Case, ms: int, severity: str) -> None:
    steps = case.line("collect", 84, "state, reward = self.vec_env.step(action)", TRAIN)
    found = case.finding(load_in_process, step(((*LOOP, steps, Frame("Pendulum.step", DATA, 90)), ms)))
    assert found.severity == severity
    assert found.title.startswith(f"input-bound: steps of the environment take {ms // 5} % of the time (train.py:84)")
    assert "several environments at once" in found.remedy


def test_sleep_in_a_step_of_an_environment_is_named_as_sleep(case: Case) -> None:
    steps = case.line("collect", 84, "state, reward = self.env.step(action)", TRAIN)
    world = (*LOOP, steps, Frame("Pendulum.step", DATA, 90))
    sleep = (*world, case.line("pace", 91, "time.sleep(self.dt)"))
    observe = (*world, case.line("observe", 92, "state = np.concatenate([self.angle, self.speed])"))
    spans = step((sleep, 100), (observe, 60))
    found = case.finding(overhead, spans)
    assert found.severity == WARNING
    assert found.title.startswith("overhead: polling or sleeping takes 20 % of the time (augment.py:90)")
    assert "steps of the environment take 12 % of the time" in case.title(load_in_process, spans)


VECTOR = LIBRARY + "stable_baselines3/common/vec_env/subproc_vec_env.py"
CONNECTION = "/usr/lib/python3.11/multiprocessing/connection.py"
RECEIVE = Frame("Connection._recv", CONNECTION, 395)
ASKS = (*LOOP, Frame("learn", TRAIN, 84), Frame("SubprocVecEnv.step_wait", VECTOR, 130), RECEIVE)
SERVES = (Frame("<module>", "<string>", 1), Frame("_worker", VECTOR, 35))


RUNNERS, RAY = LIBRARY + "ray/rllib/env/", LIBRARY + "ray/_private/worker.py"
IDLE_RUNNER = (Frame("<module>", "<string>", 1), Frame("Worker.main_loop", RAY, 1069))
RUNNER = (*IDLE_RUNNER, Frame("SingleAgentEnvRunner.sample", RUNNERS + "single_agent_env_runner.py", 263))


def served_by(
    count: int, busy_ms: int, idle: tuple[Frame, ...] = (*SERVES, RECEIVE), serves: tuple[Frame, ...] = SERVES
) -> list[records.Record]:
    """Return environments in processes of their own, each busy for so much of every half second."""
    found: list[records.Record] = []
    spans = ((idle, 500 - busy_ms), ((*serves, Frame("CartPole.step", DATA, 90)), busy_ms))
    for number in range(count):
        identity = records.Identity(9000 + number, 77)
        found.append(records.ProcessSeen(identity, MAIN, COMMAND, "helper", None, None, "3.11.7", STARTED_NS))
        for second in range(30):
            start_ns = STARTED_NS + second * SECOND_NS
            found.append(recording(identity, start_ns, [(identity.pid, "MainThread", True, (*spans, *spans))]))
    return found


def test_environments_that_cost_less_than_asking_for_them_are_taken_in_this_process(case: Case) -> None:
    found = case.finding(environments, step((ASKS, 200)), more=served_by(4, 20))
    assert (found.rule, found.severity) == ("input-bound-environments", "critical")
    assert found.title.startswith("input-bound: the main thread waits 40 % for 4 environments (train.py:84), 4 % busy")
    assert "DummyVecEnv" in found.remedy


def test_environments_that_take_long_are_what_the_program_is_for(case: Case) -> None:
    found = case.finding(environments, step((ASKS, 200)), more=served_by(4, 400))
    assert (found.rule, found.severity) == ("input-bound-environments", INFO)
    assert "4 environments (train.py:84), 80 % busy" in found.title
    assert case.severity(environments, step((ASKS, 300)), more=served_by(1, 490)) == WARNING
    assert case.found(environments, step((ASKS, 15)), more=served_by(4, 400)) is None
    assert case.found(environments, step((DATA_WAIT, 200)), more=served_by(4, 400)) is None


@pytest.mark.parametrize(("busy_ms", "remedy"), [(450, "num_envs_per_env_runner"), (20, "num_env_runners=0")])
def test_env_runners_of_ray_are_busy_for_as_long_as_they_have_something_to_do(
    case: Case, busy_ms: int, remedy: str
) -> None:
    text, file = "sampled_data = worker_set.foreach_env_runner(", LIBRARY + "ray/rllib/execution/rollout_ops.py"
    samples = case.line("synchronous_parallel_sample", 107, text, file)
    waits = (
        *LOOP,
        samples,
        Frame("EnvRunnerGroup.foreach_env_runner", RUNNERS + "a.py", 983),
        Frame("wait", RAY, 3237),
    )
    found = case.finding(environments, step((waits, 400)), more=served_by(2, busy_ms, IDLE_RUNNER, RUNNER))
    assert f"for 2 env runners (train.py:90), {busy_ms // 5} % busy" in found.title
    assert remedy in found.remedy
