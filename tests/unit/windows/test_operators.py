"""The operations of a call against counts by hand."""

from __future__ import annotations

import pytest
from support.kinetotraces import TraceScript, by_name

from profd.daemon.windows.operators import OperatorKey, Totals, estimate, sum_up
from profd.daemon.windows.trace import time_ns

CONV = ("", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "4")


def test_convolution_counts_each_place_of_the_kernel_twice() -> None:
    # 3x3 over 8x8 by twos, padded by one: 4x4 places; 16 channels from 8, in 4 groups of 2 each.
    assert estimate("aten::conv2d", [[5, 8, 8, 8], [16, 2, 3, 3]], CONV) == 2 * 5 * 4 * 4 * 9 * 16 * 2


@pytest.mark.parametrize(
    ("name", "dims", "operations"),
    [
        ("aten::mm", [[2, 3], [3, 5]], 2 * 2 * 3 * 5),
        ("aten::addmm", [[5], [2, 3], [3, 5], []], 2 * 2 * 3 * 5),
        ("aten::bmm", [[7, 2, 3], [7, 3, 5]], 2 * 7 * 2 * 3 * 5),
        ("aten::baddbmm", [[7, 2, 5], [7, 2, 3], [7, 3, 5]], 2 * 7 * 2 * 3 * 5),
        ("aten::mul", [[2, 3], []], 6),
        ("aten::add", [[], []], 1),
    ],
)
def test_products(name: str, dims: list[object], operations: int) -> None:
    assert estimate(name, dims, ()) == operations


@pytest.mark.parametrize(
    ("name", "dims", "concrete"),
    [
        ("aten::relu", [[2, 3]], ()),
        ("aten::mm", [], ()),
        ("aten::mm", [[], []], ()),
        ("aten::mm", [[0, 0], [0, 5]], ()),
        ("aten::mm", ["2x3", None], ()),
        ("aten::conv2d", [[5, 8, 8], [16, 2, 3, 3]], CONV),
        ("aten::conv2d", [[5, 8, 8, 8], [16, 2, 3, 3]], ("", "", "", "same")),
        ("aten::conv2d", [[5, 8, 8, 8], [16, 2, 3, 3]], (*CONV[:3], "[0, 0]", *CONV[4:])),
    ],
)
def test_what_fits_no_formula_has_no_estimate(name: str, dims: list[object], concrete: tuple[str, ...]) -> None:
    assert estimate(name, dims, concrete) == 0


def test_self_time_is_without_what_was_called_on_the_same_thread() -> None:
    totals = TraceScript().op("a", 0, 10).op("b", 1, 4).op("c", 2, 1).op("b", 6, 2).op("other", 3, 5, tid=2).totals()
    assert (totals["a@cpu"].cpu_total_ns, totals["a@cpu"].self_cpu_ns) == (10_000, 4_000)
    assert (totals["b@cpu"].calls, totals["b@cpu"].cpu_total_ns, totals["b@cpu"].self_cpu_ns) == (2, 6_000, 5_000)
    assert totals["other@cpu"].self_cpu_ns == 5_000
    totals = TraceScript().op("a", 0, 10).op("b", 5, 10).totals()
    assert totals["a@cpu"].self_cpu_ns == totals["b@cpu"].self_cpu_ns == 10_000
    totals = TraceScript().op("b", 0, 4).op("a", 0, 10).totals()
    assert (totals["a@cpu"].self_cpu_ns, totals["b@cpu"].self_cpu_ns) == (6_000, 4_000)
    totals = TraceScript().op("a", 0, 5).op("a", 5, 0).totals()
    assert totals["a@cpu"].calls == 2


def test_call_of_nothing_but_its_namesake_counts_once() -> None:
    totals = TraceScript().op("a", 0, 10).op("a", 1, 8).op("a", 2, 6).op("b", 3, 1).totals()
    assert (totals["a@cpu"].calls, totals["a@cpu"].cpu_total_ns, totals["a@cpu"].self_cpu_ns) == (1, 10_000, 9_000)
    totals = TraceScript().op("a", 0, 10).op("a", 1, 4).op("b", 6, 1).totals()
    assert (totals["a@cpu"].calls, totals["a@cpu"].cpu_total_ns, totals["a@cpu"].self_cpu_ns) == (2, 14_000, 9_000)
    script = TraceScript().op("a", 0, 10, linked=1).op("a", 1, 8, linked=2)
    totals = script.op("k", 20, 3, cat="kernel", tid=7, linked=2).totals()
    assert (totals["a@cpu"].calls, totals["a@cpu"].self_cuda_ns, totals["a@cpu"].cuda_total_ns) == (1, 3_000, 3_000)


def test_steps_of_the_profiler_are_one_row_and_odd_places_cost_the_shapes_only() -> None:
    script = TraceScript().op("ProfilerStep#3", 0, 1, cat="user_annotation")
    totals = script.op("ProfilerStep#4", 2, 1, cat="user_annotation").totals()
    assert {name: sums.calls for name, sums in totals.items()} == {"ProfilerStep*@cpu": 2}
    odd: dict[str, object] = {"Input Dims": "[1, 2]", "External id": "four", "Sequence number": None}
    totals = TraceScript().op("aten::mm", 0, 1, args=odd).totals()
    assert totals["aten::mm@cpu"] == Totals(calls=1, self_cpu_ns=1_000, cpu_total_ns=1_000)


def test_kernels_count_for_the_operator_that_launched_them_and_those_above() -> None:
    script = TraceScript().op("outer", 0, 10, linked=1).op("inner", 1, 5, linked=2)
    script.op("cudaLaunchKernel", 2, 1, cat="cuda_runtime", tid=77, linked=2)
    script.op("sgemm", 20, 30, tid=7, cat="kernel", linked=2).op("copy", 60, 5, tid=7, cat="gpu_memcpy", linked=1)
    totals = script.totals()
    assert (totals["inner@cpu"].self_cuda_ns, totals["inner@cpu"].cuda_total_ns) == (30_000, 30_000)
    assert (totals["outer@cpu"].self_cuda_ns, totals["outer@cpu"].cuda_total_ns) == (5_000, 35_000)
    assert (totals["sgemm@cuda"].self_cuda_ns, totals["sgemm@cuda"].cpu_total_ns) == (30_000, 0)
    # The call of the driver is the operator's, whatever thread it was seen on.
    assert totals["inner@cpu"].self_cpu_ns == 4_000
    script = TraceScript().op("a", 0, 10, linked=1)
    script.op("k", 20, 3, cat="kernel", tid=7, linked=1).op("k", 30, 4, cat="kernel", tid=7, linked=1)
    assert script.totals()["a@cpu"].self_cuda_ns == 7_000
    script = TraceScript().op("step", 0, 10, linked=1)
    totals = script.op("cudaDeviceSynchronize", 1, 5, cat="cuda_runtime", linked=0).totals()
    assert totals["step@cpu"].self_cpu_ns == 10_000
    assert totals["cudaDeviceSynchronize@cpu"].self_cpu_ns == 5_000


def test_memory_counts_for_whatever_ran_meanwhile() -> None:
    script = TraceScript().op("outer", 0, 10).op("inner", 1, 5).op("elsewhere", 1, 3, tid=2)
    totals = script.memory(2, 100).memory(8, -30).memory(3, 7, device=1).memory(50, 9).totals()
    assert (totals["outer@cpu"].cpu_bytes, totals["outer@cpu"].self_cpu_bytes) == (70, -30)
    assert (totals["inner@cpu"].cpu_bytes, totals["inner@cpu"].self_cpu_bytes) == (100, 100)
    assert totals["elsewhere@cpu"].cpu_bytes == 100
    assert (totals["outer@cpu"].cuda_bytes, totals["inner@cpu"].self_cuda_bytes) == (7, 7)
    assert (totals["[memory]@cpu"].calls, totals["[memory]@cpu"].cpu_bytes) == (1, 9)
    totals = TraceScript().op("a", 1, 4).memory(1, 5).memory(5, 3).totals()
    assert totals["a@cpu"].cpu_bytes == 8
    assert "[memory]@cpu" not in totals


def test_shapes_are_told_apart_or_summed_and_a_list_of_tensors_has_none() -> None:
    script = TraceScript()
    for at, dims in enumerate([[[2, 3], []], [[2, 3], []], [[4, 3], []], [[[2, 3], [2, 3]], []]]):
        script.op("aten::cat", at * 10, 1, args={"Input Dims": dims})
    operators = sum_up(script.spans())
    assert {key.input_shapes: totals.calls for key, totals in operators.items()} == {
        "[[2, 3], []]": 2,
        "[[4, 3], []]": 1,
        "[[], []]": 1,
    }
    assert list(by_name(operators)) == [OperatorKey("aten::cat", "cpu", False, "")]
    script = TraceScript()
    for at, dims in enumerate([[[2, 3]], [[4, 3]], [[4, 3]]]):
        script.op("aten::mm", at * 10, 1 + at, args={"Input Dims": dims})
    (totals,) = by_name(sum_up(script.spans())).values()
    assert (totals.calls, totals.cpu_total_ns) == (3, 6_000)


def test_times_are_exact_to_the_nanosecond_for_a_quarter_of_a_year() -> None:
    assert time_ns(7_889_238_000_000.123) == 7_889_238_000_000_123
    assert time_ns(4_374_504_095_947.955) == 4_374_504_095_947_955
    assert time_ns(4_450_360_144_389.971) == 4_450_360_144_389_971
