"""What the kernels of a window say: products in float32 beside tensor cores, images that are turned
around.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.findingruns import GPU, HEALTHY, Case, gpu, write_case
from support.synthetic import MAIN, MAIN_TID, STARTED_NS

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.findings.finding import CRITICAL, WARNING
from profd.daemon.findings.gpu import copies, elementwise, memory_format, precision
from profd.daemon.findings.memory import allocator_churn
from profd.daemon.findings.phases import synchronization
from profd.daemon.findings.ranks import collectives
from profd.daemon.findings.rule import Rule
from profd.daemon.store.records import DeviceSeen, OperatorTotals, WindowTaken, WindowWait

FLOAT32 = "ampere_sgemm_128x64_tn"
TF32 = "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4"
TURNING = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>"
OTHER = "void at::native::vectorized_elementwise_kernel<4>"


def kernel(name: str, time_ms: int, device: str = "cuda") -> OperatorTotals:
    time_ns = time_ms * MILLISECOND_NS
    return OperatorTotals(name, device, False, "[]", 10, 0, 0, time_ns, time_ns, 0, 0, 0, 0)


def window(*kernels: OperatorTotals, second: int = 10, error: str = "") -> WindowTaken:
    # As torch has it, the operator that starts a kernel has the time of it, too.
    from_ns, operators = (
        STARTED_NS + second * SECOND_NS,
        (kernel("aten::mm", 1000, device="cpu"), *kernels),
    )
    to_ns = from_ns + SECOND_NS
    return WindowTaken(
        MAIN, to_ns, "kineto", from_ns, error, from_ns, to_ns, (), operators=operators
    )


def write(
    path: Path, *windows: WindowTaken, model: str = "NVIDIA A100-SXM4-80GB", busy: float = 0.9
) -> Path:
    device = DeviceSeen(STARTED_NS, GPU, 0, model, "GPU-1", 80 * 2**30)
    return write_case(path, HEALTHY, series=gpu(busy), more=[device, *windows])


@pytest.fixture
def kernels(tmp_path: Path) -> Case:
    return Case(tmp_path, write)


def test_products_in_float32_are_found_with_their_share_of_the_time(kernels: Case) -> None:
    found = kernels.finding(precision, window(kernel(FLOAT32, 600), kernel(OTHER, 400)))
    # 60 % of what runs on a GPU that is busy for 90 % of the time.
    assert found.title.startswith("precision: matrix products in float32 take 54 % of the time")
    assert found.severity == CRITICAL
    assert found.gain_bound == pytest.approx(1 / (1 - 0.54))
    assert "within torch.autocast" in found.remedy
    assert "(train.py:61)" in found.remedy
    # An idle GPU has nothing of it.
    assert (
        kernels.found(precision, window(kernel(FLOAT32, 900), kernel(OTHER, 100)), busy=0.05)
        is None
    )


NAMES = {
    TF32: False,
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel": False,
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": False,
    "volta_fp16_sgemm_fp16_128x32_nn": False,
    "void implicit_convolve_sgemm<__half, __half, 128, 5, 5, 3, 3, 3, 1, false, false, true>": False,
    "ampere_dgemm_64x64_nn": False,
    "void "
    "cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(cutlass_80_simt_sgemm::Params)": True,
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize128x128x8_stage3_g1_ffma_aligna4": True,
    "ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1": True,
}


@pytest.mark.parametrize(("name", "is_meant"), NAMES.items())
def test_products_on_tensor_cores_and_in_other_precisions_are_not_meant(
    kernels: Case, name: str, is_meant: bool
) -> None:
    found = kernels.found(precision, window(kernel(name, 900), kernel(OTHER, 100)))
    assert (found is not None) == is_meant


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("Tesla T4", "float16"),
        ("NVIDIA GeForce RTX 3090", "bfloat16"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bfloat16"),
        ("NVIDIA L40S", "bfloat16"),
        ("NVIDIA A100-SXM4-80GB", "bfloat16"),
        ("Tesla P100-PCIE-16GB", None),
        ("NVIDIA GeForce GTX 1080 Ti", None),
        ("Tesla M40", None),
    ],
)
def test_old_gpus_have_no_tensor_cores_and_older_ones_are_not_given_bfloat16(
    kernels: Case, model: str, kind: str | None
) -> None:
    found = kernels.found(precision, window(kernel(FLOAT32, 900)), model=model)
    assert (found is None) == (kind is None)
    assert found is None or f"dtype=torch.{kind})" in found.remedy


def test_the_last_window_counts_that_succeeded(kernels: Case) -> None:
    before, after = window(kernel(FLOAT32, 900)), window(kernel(TF32, 300), second=20)
    failed = window(second=25, error="no torch")

    assert kernels.found(precision, before, failed) is not None
    assert kernels.found(precision, before, after) is None
    assert kernels.found(precision) is None


def test_images_that_are_turned_around_want_channels_last(kernels: Case) -> None:
    found = kernels.finding(memory_format, window(kernel(TURNING, 200), kernel(TF32, 800)))
    assert found.severity == WARNING
    assert found.title.startswith(
        "memory format: reordering images for convolutions takes 18 % of the time"
    )
    assert "torch.channels_last" in found.remedy
    assert found.gain_bound == pytest.approx(1 / (1 - 0.18))
    assert kernels.found(memory_format, window(kernel(TURNING, 20), kernel(TF32, 980))) is None


def test_kernels_that_a_compiler_would_fuse_are_a_finding(kernels: Case) -> None:
    found = kernels.finding(elementwise, window(kernel(TF32, 300), kernel(OTHER, 700)))
    assert "element by element take 63 % of the time" in found.title
    assert kernels.found(elementwise, window(kernel(TF32, 950), kernel(OTHER, 50))) is None


def test_copies_from_memory_that_is_not_pinned_are_a_finding(kernels: Case) -> None:
    copying = [
        kernel(f"Memcpy HtoD ({memory} -> Device)", 300) for memory in ("Pageable", "Pinned")
    ]
    found = kernels.finding(copies, window(copying[0], kernel(TF32, 700)))
    assert "take 27 % of the GPU's time" in found.title
    assert kernels.found(copies, window(copying[1], kernel(TF32, 700))) is None


@pytest.mark.parametrize(
    ("call", "rule", "words"),
    [
        (
            "cudaStreamSynchronize",
            synchronization,
            "calls that wait for the GPU take 20 % of the last torch window (train",
        ),
        (
            "cudaMalloc",
            allocator_churn,
            "memory of the GPU takes 20 % of the last torch window (train",
        ),
        (
            "collective",
            collectives,
            "GPUs do nothing but exchange data 20 % of the last torch window:",
        ),
    ],
)
def test_waits_in_a_window_are_found_with_their_line(
    kernels: Case, call: str, rule: Rule, words: str
) -> None:
    def taken(wait_ms: int, tid: int) -> WindowTaken:
        one, wait_ns = window(), wait_ms * MILLISECOND_NS
        begins = (one.start_ns + part * SECOND_NS // 10 for part in range(10))
        waits = (WindowWait(call, at_ns, at_ns + wait_ns, tid) for at_ns in begins)
        return msgspec.structs.replace(one, waits=tuple(waits))

    assert words in kernels.title(rule, taken(20, MAIN_TID), busy=0.5)
    assert kernels.found(rule, taken(1, MAIN_TID), busy=0.5) is None
    # A busy GPU is waited for, which costs nothing; what is exchanged on it does.
    assert (kernels.found(rule, taken(20, MAIN_TID), busy=1.0) is None) == (call != "collective")
