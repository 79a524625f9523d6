from __future__ import annotations

from pathlib import Path

import pytest
from support.findingruns import HEALTHY, Case, Series, at_most_without, diagnose, step, write_case
from support.training_stacks import LIBRARY, OPTIMIZER

from profd.daemon.findings.catalog import find
from profd.daemon.findings.finding import WARNING
from profd.daemon.findings.phases import unfused_optimizer
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame

FUSED = (*OPTIMIZER[:-1], Frame("_fused_adam", LIBRARY + "torch/optim/adam.py", 790))


def test_weights_that_are_updated_tensor_by_tensor_are_told_with_the_line(case: Case) -> None:
    found = case.told(unfused_optimizer, step((OPTIMIZER, 190)))
    assert found.severity == WARNING
    assert found.title.startswith("optimizer: updating the weights tensor by tensor takes 40 % of a step (train.py:64)")
    assert found.gain_bound == pytest.approx(at_most_without(0.4), rel=0.03)
    assert "fused=True" in found.remedy


def test_a_fused_optimizer_and_a_short_one_are_no_finding(tmp_path: Path) -> None:
    for number, spans in enumerate([step((FUSED, 190)), HEALTHY]):
        assert diagnose(write_case(tmp_path / f"{number}.profd", spans), unfused_optimizer) is None


def test_torchs_default_on_a_gpu_is_told_there_alone(case: Case) -> None:
    foreach = step(((*OPTIMIZER[:-1], Frame("_multi_tensor_adam", LIBRARY + "torch/optim/adam.py", 590)), 190))
    used = [
        Series("gpu_utilization_share", 0.5, identity=None, device="gpu0"),
        Series("gpu_process_memory_bytes", 1e9, device="gpu0"),
    ]
    found = case.told(unfused_optimizer, foreach, series=used)
    assert "operation by operation takes 38 % of a step (train.py:64)" in found.title
    assert found.gain_bound == pytest.approx(at_most_without(0.38), rel=0.03)
    assert case.found(unfused_optimizer, foreach) is None


@pytest.mark.parametrize(("one_by_one_ms", "besides_ms"), [(190, 0), (225, 30)], ids=["mild", "grave"])
def test_a_slow_optimizer_comes_before_larger_batches(tmp_path: Path, one_by_one_ms: int, besides_ms: int) -> None:
    # What is no update of weights is half of a step for sure only where it is added to that.
    spans = step((OPTIMIZER, one_by_one_ms), (FUSED, besides_ms))
    with RunReader(write_case(tmp_path / "a.profd", spans)) as reader:
        assert [one.rule for one in find(reader)] == ["unfused-optimizer", "small-batches"]
