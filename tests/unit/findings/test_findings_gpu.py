from __future__ import annotations

from pathlib import Path

from support.findingruns import HEALTHY, Series, diagnose, step, write_case
from support.synthetic import MAIN, STARTED_NS
from support.training_stacks import LIBRARY, OPTIMIZER, TRAIN

from profd.daemon.findings.finding import CRITICAL, INFO, WARNING
from profd.daemon.findings.gpu import copies, gpu_held_back, gpu_unused
from profd.daemon.findings.phases import compilation, small_batches
from profd.daemon.store.records import DeviceSeen, Frame

GPU = "gpu0"
ROOT = (Frame("<module>", TRAIN, 96), Frame("main", TRAIN, 90), Frame("train_epoch", TRAIN, 59))
COPY = (*ROOT, Frame("Module.to", LIBRARY + "torch/nn/modules/module.py", 1300))
COMPILE = (*ROOT, Frame("compile_fx", LIBRARY + "torch/_inductor/compile_fx.py", 1200))


def gpu(utilization: float, throttled: float = 0.0) -> list[Series]:
    """Return the series of a GPU that the training uses."""
    return [
        Series("gpu_utilization_share", utilization, identity=None, device=GPU),
        Series("gpu_throttled_share", throttled, identity=None, device=GPU),
        Series("gpu_process_memory_bytes", 1e9, identity=MAIN, device=GPU),
    ]


def test_a_gpu_that_waits_for_python_wants_larger_batches(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=gpu(0.4)), small_batches)

    assert found is not None
    assert found.severity == CRITICAL
    # Larger batches make each operation on the GPU more efficient, too: only for those of now there is a bound.
    assert found.gain_bound is None
    assert "speeds steps up by at most 2.5" in found.remedy
    assert diagnose(write_case(tmp_path / "b.profd", HEALTHY, series=gpu(0.95)), small_batches) is None


def test_without_a_gpu_the_optimizer_tells_that_batches_are_small(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((OPTIMIZER, 150))), small_batches)

    assert found is not None
    assert found.severity == WARNING
    assert "the optimizer takes 32 % of a step (train.py:64)" in found.title
    assert found.gain_bound is None
    assert "one step of the optimizer for several of them (train.py:64) speeds steps up by at most 1.6" in found.remedy


def test_an_optimizer_warns_where_a_batch_of_three_times_the_size_spares_a_tenth(tmp_path: Path) -> None:
    """NAdam has no fused form. Another 2 % are that of ``step``; the interval's low end counts."""
    nadam = (*ROOT, Frame("_single_tensor_nadam", LIBRARY + "torch/optim/nadam.py", 357))
    found = [diagnose(write_case(tmp_path / f"{ms}.profd", step((nadam, ms))), small_batches) for ms in (45, 80)]
    assert [one.severity if one else None for one in found] == [INFO, WARNING]


def test_copies_are_a_loss_only_while_the_gpu_has_room(tmp_path: Path) -> None:
    copying = step((COPY, 200))
    found = diagnose(write_case(tmp_path / "a.profd", copying, series=gpu(0.5)), copies)

    assert found is not None
    assert "copying to the GPU takes 40 %" in found.title
    assert diagnose(write_case(tmp_path / "b.profd", copying, series=gpu(0.99)), copies) is None


def test_clocks_that_are_held_down_are_told(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=gpu(0.9, throttled=1.0)), gpu_held_back)

    assert found is not None
    assert "clocks of gpu0 down 100 %" in found.title
    assert diagnose(write_case(tmp_path / "b.profd", HEALTHY, series=gpu(0.9)), gpu_held_back) is None


def test_a_gpu_that_nobody_uses_is_told(tmp_path: Path) -> None:
    device = DeviceSeen(STARTED_NS, GPU, 0, "H100", "GPU-1", 80 * 2**30)
    found = diagnose(write_case(tmp_path / "a.profd", HEALTHY, more=[device]), gpu_unused)

    assert found is not None
    assert "the training runs on the CPU (train.py:61) beside 1 H100" in found.title
    used = write_case(tmp_path / "b.profd", HEALTHY, more=[device], series=gpu(0.9))
    assert diagnose(used, gpu_unused) is None


def test_compiling_in_the_middle_of_the_training_is_told(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((COMPILE, 150))), compilation)

    assert found is not None
    assert found.severity == WARNING


def test_a_script_that_trains_nothing_is_not_sent_to_the_gpu(tmp_path: Path) -> None:
    device = DeviceSeen(STARTED_NS, GPU, 0, "H100", "GPU-1", 80 * 2**30)
    path = write_case(tmp_path / "a.profd", ((ROOT, 500),), more=[device])

    assert diagnose(path, gpu_unused) is None
