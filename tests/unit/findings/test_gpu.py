from __future__ import annotations

import re

import pytest
from support.findingruns import GPU, HEALTHY, LOAD_IN_PROCESS, ROOT, Case, Series, gpu, of_gpu, step
from support.synthetic import STARTED_NS
from support.training_stacks import DATA_WAIT, LIBRARY, SYNCHRONIZE

from profd.daemon.events import EventKind
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING
from profd.daemon.findings.gpu import (
    copies,
    gpu_error,
    gpu_held_back,
    gpu_idle,
    gpu_unused,
    pcie_link,
    tensor_cores_idle,
    underfilled,
)
from profd.daemon.findings.phases import small_batches, synchronization
from profd.daemon.findings.rule import Rule
from profd.daemon.store.records import DeviceSeen, EventHappened, Frame

DEVICE = DeviceSeen(STARTED_NS, GPU, 0, "NVIDIA H100", "GPU-1", 80 * 2**30)
COPY = (*ROOT, Frame("Module.to", LIBRARY + "torch/nn/modules/module.py", 1300))


def capped(mask: int, *clocks: float) -> list[Series]:
    return [of_gpu("gpu_throttle_reasons_mask", mask), of_gpu("gpu_sm_clock_hz", *clocks)]


def test_copies_are_a_loss_only_while_the_gpu_has_room(case: Case) -> None:
    copying = step((COPY, 200))
    assert "copying to the GPU takes 40 %" in case.title(copies, copying, series=gpu(0.5))
    assert case.found(copies, copying, series=gpu(0.99)) is None


@pytest.mark.parametrize("mask", [0x8, 0x20, 0x44, 0x80])
def test_clocks_that_heat_or_hardware_holds_down_are_a_warning(mask: int, case: Case) -> None:
    found = case.finding(gpu_held_back, HEALTHY, series=gpu(0.9, *capped(mask, 1.98e9)))
    assert found.severity == WARNING
    assert "clocks of gpu0 down 100 %" in found.title
    assert case.found(gpu_held_back, HEALTHY, series=gpu(0.9, *capped(0, 1.98e9))) is None
    between_flags = of_gpu("gpu_heat_slowed_share", 0.3)
    assert "down 30 %" in case.title(
        gpu_held_back, HEALTHY, series=gpu(0.9, *capped(0, 1.98e9), between_flags)
    )


def test_a_gpu_at_full_power_is_healthy_and_its_loss_of_clock_a_remark(case: Case) -> None:
    (found,) = case.findings(HEALTHY, series=gpu(0.99, *capped(0x4, 1.98e9, 1.6e9)))
    assert (found.rule, found.severity) == ("gpu-held-back", INFO)
    assert (
        "draws all the power that it may 100 % of the time: its clock is 19 % below" in found.title
    )
    assert case.found(gpu_held_back, HEALTHY, series=gpu(0.99, *capped(0x4, 1.98e9))) is None


def test_a_gpu_that_nobody_uses_is_a_finding(case: Case) -> None:
    rests = of_gpu("gpu_utilization_share", 0.0)
    title = case.title(gpu_unused, HEALTHY, more=[DEVICE], series=[rests])
    assert "the training runs on the CPU (train.py:61) beside 1 NVIDIA H100" in title
    assert case.found(gpu_unused, HEALTHY, more=[DEVICE], series=gpu(0.9)) is None


def test_a_script_that_trains_nothing_is_not_sent_to_the_gpu(case: Case) -> None:
    assert (
        case.found(
            gpu_unused, ((ROOT, 500),), more=[DEVICE], series=[of_gpu("gpu_utilization_share", 0.0)]
        )
        is None
    )


@pytest.mark.parametrize(
    "series", [[], [of_gpu("gpu_utilization_share", 0.3)]], ids=["unread", "hidden"]
)
def test_where_a_container_hides_processes_nobody_says_that_a_gpu_is_unused(
    series: list[Series], case: Case
) -> None:
    waits = step((SYNCHRONIZE, 200))
    assert case.found(gpu_unused, waits, more=[DEVICE], series=series) is None
    assert "waits for the device" in case.title(
        synchronization, waits, more=[DEVICE], series=series
    )
    small = case.found(small_batches, waits, more=[DEVICE], series=series)
    assert small is None or "the GPU is busy 30 %" in small.title


def test_a_loop_that_the_gpu_bounds_loses_nothing_by_what_python_does_meanwhile(case: Case) -> None:
    hidden = step((LOAD_IN_PROCESS, 75), (SYNCHRONIZE, 75))
    assert {one.severity for one in case.findings(hidden, series=gpu(0.97))} <= {INFO}
    found = case.findings(hidden, series=gpu(0.5))
    assert {one.rule for one in found if one.severity != INFO} >= {
        "input-bound-in-process",
        "synchronization",
    }
    assert all(one.gain_bound is None or one.gain_bound <= 2.0 for one in found)


def test_idle_gpus_are_found_with_the_phase_of_most_of_the_idle_time(case: Case) -> None:
    # A second that waits for data and the GPU with it, then one in which both work.
    turns = of_gpu("gpu_utilization_share", *((0.0, 1.0) * 15))
    found = case.finding(gpu_idle, ((DATA_WAIT, 500),), step(), series=[*gpu(1.0)[1:], turns])
    assert found.severity == WARNING
    assert re.search(
        r"GPUs idle 48 % of the time, at least 9\d % of it in data wait \(train.py:\d+\)",
        found.title,
    )
    even = case.finding(gpu_idle, step((DATA_WAIT, 100)), series=gpu(0.6))
    assert (
        even.sentence
        == "GPUs idle 40 % of the time, in gaps that are too short for readings to tell where"
    )
    assert case.found(gpu_idle, HEALTHY, series=gpu(0.75)) is None


def test_idle_gpus_are_left_out_beside_the_finding_that_explains_them(case: Case) -> None:
    for wait_ms, rules in (
        (200, {"input-bound-in-process"}),
        (75, {"input-bound-in-process", "gpu-idle"}),
    ):
        findings = case.findings(step((LOAD_IN_PROCESS, wait_ms)), series=gpu(0.5))
        found = {one.rule for one in findings if one.severity != INFO}
        assert found & {"gpu-idle", "input-bound-in-process"} == rules


def test_one_idle_gpu_of_several_is_a_finding(case: Case) -> None:
    found = case.finding(
        gpu_unused, HEALTHY, more=[DEVICE], series=[*gpu(0.9), *gpu(0.0, device="gpu1")]
    )
    assert (found.rule, found.severity) == ("gpu-unused", WARNING)
    assert (
        "gpu1 holds memory of the training and is busy 0 % of the time, another one 90 %"
        in found.title
    )
    assert (
        case.found(gpu_unused, HEALTHY, more=[DEVICE], series=[*gpu(0.9), *gpu(0.8, device="gpu1")])
        is None
    )


@pytest.mark.parametrize(
    "text", [*(f"Xid {number}: an error" for number in (48, 63, 79, 94, 95)), "a memory error x"]
)
def test_errors_after_which_a_gpu_computes_wrongly_are_an_alarm(text: str, case: Case) -> None:
    event = EventHappened(STARTED_NS + 10**9, EventKind.GPU, f"gpu0: {text}")
    found = case.finding(gpu_error, HEALTHY, more=[event])
    assert (found.severity, found.title) == (CRITICAL, f"GPU error: gpu0: {text}")
    harmless = EventHappened(
        STARTED_NS + 10**9, EventKind.GPU, "gpu0: Xid 43: GPU stopped processing"
    )
    assert case.found(gpu_error, HEALTHY, more=[harmless]) is None


def link(generation: int, lanes: int) -> list[Series]:
    values = {"generation": generation, "lanes": lanes, "generation_most": 5, "lanes_most": 16}
    return [of_gpu(f"gpu_pcie_{name}", value) for name, value in values.items()]


SM, TENSOR = of_gpu("gpu_sm_active_share", 0.6), of_gpu("gpu_tensor_active_share", 0.3)
REMARKS: dict[str, tuple[Rule, list[Series], list[Series], str]] = {
    "lanes": (
        pcie_link,
        gpu(0.9, *link(5, 8)),
        gpu(0.9, *link(5, 16)),
        "8 of 16 lanes. It runs at generation 5 of 5",
    ),
    "a link that may rest": (
        pcie_link,
        gpu(0.9, *link(3, 16)),
        gpu(0.02, *link(1, 16)),
        "16 of 16 lanes. It runs at generation 3 of 5",
    ),
    "small kernels": (
        underfilled,
        gpu(0.97, of_gpu("gpu_sm_active_share", 0.08)),
        gpu(0.97, SM),
        "gpu0 runs something 97 % of the time, on 8 % of its multiprocessors",
    ),
    "tensor cores": (
        tensor_cores_idle,
        gpu(0.97, SM, of_gpu("gpu_tensor_active_share", 0.0)),
        gpu(0.97, SM, TENSOR),
        "the tensor cores of gpu0 are busy 0 % of the time, its multiprocessors 60 %",
    ),
}


@pytest.mark.parametrize(("rule", "series", "healthy", "text"), REMARKS.values(), ids=REMARKS)
def test_counters_are_remarked_on(
    rule: Rule, series: list[Series], healthy: list[Series], text: str, case: Case
) -> None:
    found = case.finding(rule, HEALTHY, series=series)
    assert found.severity == INFO
    assert text in f"{found.title} {found.cause}"
    assert case.found(rule, HEALTHY, series=healthy) is None
