"""Waits for environments of an agent, in processes of their own."""

from __future__ import annotations

import pytest
from support.findingruns import LOOP, Case, step
from support.synthetic import COMMAND, DATA_WAIT, MAIN, STARTED_NS, TRAIN, recording
from support.training_stacks import DATA, LIBRARY

from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.environments import environments
from profd.daemon.findings.finding import INFO, WARNING
from profd.daemon.store import records
from profd.daemon.store.records import Frame

VECTOR = LIBRARY + "stable_baselines3/common/vec_env/subproc_vec_env.py"
CONNECTION = "/usr/lib/python3.11/multiprocessing/connection.py"
RECEIVE = Frame("Connection._recv", CONNECTION, 395)
ASKS = (*LOOP, Frame("learn", TRAIN, 84), Frame("SubprocVecEnv.step_wait", VECTOR, 130), RECEIVE)
SERVES = (Frame("<module>", "<string>", 1), Frame("_worker", VECTOR, 35))


RUNNERS, RAY = LIBRARY + "ray/rllib/env/", LIBRARY + "ray/_private/worker.py"
IDLE_RUNNER = (Frame("<module>", "<string>", 1), Frame("Worker.main_loop", RAY, 1069))
RUNNER = (
    *IDLE_RUNNER,
    Frame("SingleAgentEnvRunner.sample", RUNNERS + "single_agent_env_runner.py", 263),
)


def served_by(
    count: int,
    busy_ms: int,
    idle: tuple[Frame, ...] = (*SERVES, RECEIVE),
    serves: tuple[Frame, ...] = SERVES,
) -> list[records.Record]:
    """Return environments in processes of their own, each busy for so much of every half second."""
    found: list[records.Record] = []
    spans = ((idle, 500 - busy_ms), ((*serves, Frame("CartPole.step", DATA, 90)), busy_ms))
    for number in range(count):
        identity = records.Identity(9000 + number, 77)
        found.append(
            records.ProcessSeen(identity, MAIN, COMMAND, "helper", None, None, "3.11.7", STARTED_NS)
        )
        for second in range(30):
            start_ns = STARTED_NS + second * SECOND_NS
            found.append(
                recording(
                    identity, start_ns, [(identity.pid, "MainThread", True, (*spans, *spans))]
                )
            )
    return found


def test_environments_that_cost_less_than_asking_for_them_are_taken_in_this_process(
    case: Case,
) -> None:
    found = case.finding(environments, step((ASKS, 200)), more=served_by(4, 20))
    assert (found.rule, found.severity) == ("input-bound-environments", "critical")
    assert found.title.startswith(
        "input-bound: the main thread waits for environments 40 % of the time (train.py:84)"
    )
    assert "DummyVecEnv" in found.remedy


def test_environments_that_take_long_are_what_the_program_is_for(case: Case) -> None:
    found = case.finding(environments, step((ASKS, 200)), more=served_by(4, 400))
    assert (found.rule, found.severity) == ("input-bound-environments", INFO)
    assert "for environments 40 % of the time (train.py:84)" in found.title
    assert "80 % busy" in found.cause
    assert case.severity(environments, step((ASKS, 300)), more=served_by(1, 490)) == WARNING
    assert case.found(environments, step((ASKS, 15)), more=served_by(4, 400)) is None
    assert case.found(environments, step((DATA_WAIT, 200)), more=served_by(4, 400)) is None


@pytest.mark.parametrize(
    ("busy_ms", "remedy"), [(450, "num_envs_per_env_runner"), (20, "num_env_runners=0")]
)
def test_env_runners_of_ray_are_busy_for_as_long_as_they_have_something_to_do(
    case: Case, busy_ms: int, remedy: str
) -> None:
    text, file = (
        "sampled_data = worker_set.foreach_env_runner(",
        LIBRARY + "ray/rllib/execution/rollout_ops.py",
    )
    samples = case.line("synchronous_parallel_sample", 107, text, file)
    waits = (
        *LOOP,
        samples,
        Frame("EnvRunnerGroup.foreach_env_runner", RUNNERS + "a.py", 983),
        Frame("wait", RAY, 3237),
    )
    found = case.finding(
        environments, step((waits, 400)), more=served_by(2, busy_ms, IDLE_RUNNER, RUNNER)
    )
    assert "for env runners 80 % of the time (train.py:90)" in found.title
    assert f"{busy_ms // 5} % busy" in found.cause
    assert remedy in found.remedy


OWN_VECTOR = "/home/user/project/envs.py"
OWN_SERVES = (
    Frame("main", TRAIN, 40),
    Frame("SubprocVectorEnv.__init__", OWN_VECTOR, 20),
    Frame("BaseProcess._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314),
    Frame("serve", OWN_VECTOR, 7),
)


def test_environments_of_the_users_own_are_none_that_could_make_batches_ahead(case: Case) -> None:
    asks = case.line(
        "SubprocVectorEnv.step", 31, "got = [one.recv() for one in remotes]", OWN_VECTOR
    )
    looks = case.line("PriceFeedEnv.step", 50, "price = self.socket.recv(8)", OWN_VECTOR)
    served = served_by(4, 20, (*OWN_SERVES, RECEIVE), OWN_SERVES)
    found = case.findings(step(((*LOOP, asks, RECEIVE), 200)), more=served)
    assert [one.rule for one in found if one.severity != INFO] == ["input-bound-environments"]
    assert found[0].title.startswith(
        "input-bound: the main thread waits for environments 40 % of the time (envs.py:31)"
    )
    assert "DummyVecEnv" in found[0].remedy
    # What asks a server by itself is no environment in another process.
    first = case.findings(step(((*LOOP, looks), 200)))[0]
    assert "sending requests over the network takes 40 %" in first.title
