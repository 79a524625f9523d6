"""Operators with CUDA against torch's own code for its tables, of the same events, to the microsecond."""

from __future__ import annotations

import random

import pytest
from support.cudatraces import PID, CudaScript
from support.kinetotraces import by_name
from support.torchtables import TorchRow, key_averages

from profd.daemon.windows.operators import sum_up

pytestmark = pytest.mark.requires("torch")


def ours(script: CudaScript) -> dict[tuple[str, str, bool], TorchRow]:
    sums = by_name(sum_up(script.spans()))
    return {
        (key.name, key.device, key.is_annotation): TorchRow(
            one.calls, *(ns / 1000 for ns in (one.self_cpu_ns, one.cpu_total_ns, one.self_cuda_ns, one.cuda_total_ns))
        )
        for key, one in sums.items()
    }


def compare(script: CudaScript) -> None:
    theirs, own = key_averages(script.events), ours(script)
    assert theirs.keys() == own.keys()
    for key, row in theirs.items():
        assert own[key].calls == row.calls, key
        for field in ("self_cpu_us", "cpu_total_us", "self_cuda_us", "cuda_total_us"):
            assert getattr(own[key], field) == pytest.approx(getattr(row, field), abs=1e-3), (key, field)


def training_step(script: CudaScript, at: float, number: int) -> None:
    """Add a step: a copy, an operator within another, a range, the optimizer on two streams, a graph and Triton."""
    first = 10 * number
    script.host("ProfilerStep#1", at, 400, first, cat="user_annotation")
    script.host("aten::to", at + 2, 30, first + 1).host("aten::copy_", at + 3, 28, first + 2)
    script.launch("Memcpy HtoD (Pageable -> Device)", at + 5, 20, (at + 9, 14), op=first + 2, cat="gpu_memcpy",
                  call="cudaMemcpyAsync")  # fmt: skip
    script.host("aten::linear", at + 40, 40, first + 3).host("aten::addmm", at + 42, 30, first + 4)
    script.launch("sgemm", at + 45, 6, (at + 60, 37.5), op=first + 4)
    script.launch("splitk", at + 55, 6, (at + 99, 3), op=first + 4)
    # Called as a thread of autograd does.
    script.host("AddmmBackward0", at + 100, 50, first + 5, tid=PID + 1)
    script.launch("sgemm", at + 110, 6, (at + 120, 44.25), op=first + 5, tid=PID + 1)
    script.host("Optimizer.step#SGD.step", at + 200, 90, first + 6, cat="user_annotation")
    script.host("aten::_foreach_add_", at + 205, 70, first + 7)
    script.launch("multi_tensor_apply", at + 210, 9, (at + 230, 30), op=first + 7)
    script.launch("multi_tensor_apply", at + 230, 9, (at + 245, 30), op=first + 7, stream=20)
    script.annotation("Optimizer.step#SGD.step", at + 230, 30, first + 6)
    script.annotation("Optimizer.step#SGD.step", at + 245, 30, first + 6, stream=20)
    script.launch("captured", at + 300, 4, (at + 310, 5), (at + 320, 5), call="cudaGraphLaunch")
    script.host("triton_poi_fused_add", at + 330, 20, first + 8)
    script.launch("triton_poi_fused_add", at + 335, 5, (at + 350, 7), op=first + 8, call="cuLaunchKernel")
    script.launch("", at + 370, 25, op=first, call="cudaDeviceSynchronize")
    script.sync(at + 370, 25).overhead(at + 330, 3)


def test_a_training_step_has_the_columns_of_torch() -> None:
    script = CudaScript()
    for number in range(1, 4):
        training_step(script, 500 * number, number)
    compare(script)
    # The range of the device is no work beside the kernels that it spans.
    row = ours(script)["Optimizer.step#SGD.step", "cpu", True]
    assert (row.self_cuda_us, row.cuda_total_us) == (0, 3 * 60)
    script = CudaScript().host("aten::sum", 0, 100, 1).host("aten::sum", 10, 80, 2).host("aten::fill_", 20, 10, 3)
    compare(script.launch("reduce", 40, 5, (50, 9), op=2).launch("fill", 22, 5, (30, 2), op=3))


@pytest.mark.parametrize("seed", range(30))
def test_random_trees_have_the_columns_of_torch(seed: int) -> None:
    chance, script, number = random.Random(seed), CudaScript(), 1
    for tid in (PID, PID + 1):
        opened, at = [1_000_000], 0
        for _ in range(60):
            at += chance.randrange(1, 40)
            while at >= opened[-1]:
                opened.pop()
            end = min(at + chance.randrange(2, 400), opened[-1])
            number += 1
            cat = chance.choice(("cpu_op", "cpu_op", "user_annotation"))
            script.host(f"op{chance.randrange(4)}", at, end - at, number, tid=tid, cat=cat)
            opened.append(end)
            if chance.random() < 0.6:
                took, stream = min(1, end - at), chance.choice((7, 20))
                start = at + chance.randrange(1, 300)
                op = chance.choice((number, number, 0))
                script.launch(f"k{chance.randrange(3)}", at, took, (start, 5.125), op=op, stream=stream, tid=tid)
            if cat == "user_annotation":
                script.annotation(f"range{number}", at, 100, number).sync(at, 9)
    compare(script)
