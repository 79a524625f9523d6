from __future__ import annotations

from pathlib import Path

import pytest
from support.findingruns import HEALTHY, Series, at_most_without, diagnose, step, write_case
from support.synthetic import MAIN
from support.training_stacks import LIBRARY, SYNCHRONIZE, TRAIN

from profd.daemon.findings.catalog import RULES, Rule
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING
from profd.daemon.findings.phases import checkpoints, evaluations, hot_function, logging_stalls, synchronization
from profd.daemon.store.records import Frame

ROOT = (Frame("<module>", TRAIN, 96), Frame("main", TRAIN, 90), Frame("train_epoch", TRAIN, 70))
SAVE = (*ROOT, Frame("save", LIBRARY + "torch/serialization.py", 944))
LOG = (*ROOT, Frame("Logger.info", "/usr/lib/python3.11/logging/__init__.py", 1489))
EVALUATE = (*ROOT, Frame("evaluate", TRAIN, 120), Frame("Module._call_impl", LIBRARY + "torch/nn/modules/module.py", 9))
LOOP, ADD = (*ROOT, Frame("spread", TRAIN, 77)), (*ROOT, Frame("spread", TRAIN, 78))
GPU = "gpu0"


def gpu(utilization: float) -> list[Series]:
    """Return the series of a GPU that the training uses."""
    return [
        Series("gpu_utilization_share", utilization, identity=None, device=GPU),
        Series("gpu_process_memory_bytes", 1e9, identity=MAIN, device=GPU),
    ]


@pytest.mark.parametrize(
    ("rule", "stack", "label"),
    [
        (checkpoints, SAVE, "checkpoints: saving takes 30 %"),
        (logging_stalls, LOG, "logging: reporting takes 30 %"),
        (evaluations, EVALUATE, "evaluation: evaluating takes 30 %"),
        (synchronization, SYNCHRONIZE, "synchronization: 30 % of the time"),
    ],
)
def test_what_stops_the_steps_is_found_by_its_own_rule_alone(
    tmp_path: Path, rule: Rule, stack: tuple[Frame, ...], label: str
) -> None:
    path = write_case(tmp_path / "a.profd", step((stack, 150)))
    found = diagnose(path, rule)

    assert found is not None
    assert found.title.startswith(label)
    assert found.severity == WARNING
    assert found.gain_bound == pytest.approx(at_most_without(0.3), rel=0.03)
    assert found.evidence.line is not None
    assert found.evidence.line.file == TRAIN
    assert [one for one in RULES if diagnose(path, one) is not None] == [rule]


def test_evaluation_is_no_loss_while_it_is_moderate(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((EVALUATE, 90))), evaluations)

    assert found is not None
    assert found.severity == INFO


def test_a_wait_for_a_busy_gpu_is_no_loss(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", step((SYNCHRONIZE, 350)), series=gpu(0.98))

    assert diagnose(path, synchronization) is None


def test_a_wait_for_an_idle_gpu_is_lost_as_far_as_the_gpu_allows(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", step((SYNCHRONIZE, 350)), series=gpu(0.5))
    found = diagnose(path, synchronization)

    assert found is not None
    assert "waits for the device for 70 %" in found.title
    assert found.gain_bound == pytest.approx(2.0)


def test_a_function_that_loops_in_python_is_found(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", step((LOOP, 50), (ADD, 200)))
    found = diagnose(path, hot_function)

    assert found is not None
    assert found.severity == CRITICAL
    assert "spread loops in Python for 50 % of the time (train.py:78)" in found.title


def test_a_function_that_only_calls_long_operations_is_not(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", step((ADD, 200)))

    assert diagnose(path, hot_function) is None


def test_time_that_another_rule_tells_is_not_blamed_on_the_loop_around_it(tmp_path: Path) -> None:
    around = (*ROOT[:-1], Frame("train_epoch", TRAIN, 77))
    path = write_case(tmp_path / "a.profd", step((around, 10), (SYNCHRONIZE, 200)))

    assert diagnose(path, hot_function) is None
    assert diagnose(path, synchronization) is not None


def test_a_healthy_run_has_no_findings(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY)

    assert [rule for rule in RULES if diagnose(path, rule) is not None] == []


def test_a_phase_that_may_take_less_is_not_warned_of(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((SAVE, 54)), seconds=10), checkpoints)

    assert found is not None
    assert found.evidence.measures[0].value > 0.1
    assert found.severity == INFO
