"""The operations of a call against counts by hand, and operators against what torch makes of the
same trace.

``torch.autograd.profiler``, which sums them up here, gets its events from C++ as ``_KinetoEvent``.
Where each field comes from in a trace (torch 2.15, ``torch/csrc/profiler/collection.cpp``,
``TransferEvents``, and libkineto's ``output_json.cpp``):

- ``device_type``: CUDA of work and ranges of a GPU, CPU of all else (``kineto_shim.cpp``,
  ``deviceTypeFromActivity``).
- ``correlation_id``: of what torch reports its ``External id``, of all else that of the driver.
- ``linked_correlation_id``: of calls and work their ``External id``, where an operator was open; 0
  of all else. ``createUserGpuSpan`` links ranges of a GPU to nothing, so they have 0, too.
- ``start_thread_id``: of what is linked to no operator that of the thread that ends the profiler
  (``setKinetoTID``): with windows, one that has no operators.
- Times are those before a range is widened for viewers.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support.cudatraces import PID, CudaScript
from support.kinetotraces import TraceScript, by_name

from profd.daemon.frameworks.kineto import time_ns
from profd.daemon.windows.operators import OperatorKey, Totals, sum_up

_FRONTEND = ("cpu_op", "user_annotation", "python_function")
_ENDING = -1
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")


class TorchRow(msgspec.Struct, frozen=True):
    """A row of torch's table; times are microseconds."""

    calls: int
    self_cpu_us: float
    cpu_total_us: float
    self_cuda_us: float
    cuda_total_us: float


def key_averages(events: list[dict[str, Any]]) -> dict[tuple[str, str, bool], TorchRow]:
    """Return torch's ``key_averages()`` of the events of a trace by name, device, and whether it is
    a range.
    """
    from torch._C._autograd import DeviceType
    from torch.autograd.profiler import profile
    from torch.autograd.profiler_util import EventList

    ids = {event["args"].get("External id") for event in events if event["cat"] in _FRONTEND}
    found = [
        _kineto_event(event, ids, DeviceType)
        for event in events
        if event["cat"] not in ("cuda_sync", "Trace")
    ]
    begun_ns = min(event.start_ns() for event in found)
    result = SimpleNamespace(events=lambda: found, trace_start_ns=lambda: begun_ns)
    parsed = profile._parse_kineto_results(SimpleNamespace(use_device="cuda"), result)  # type: ignore[arg-type]
    table: Any = EventList(parsed, use_device="cuda", profile_memory=False, with_flops=False)  # type: ignore[no-untyped-call]
    table._build_tree()
    return {
        (
            row.key,
            "cpu" if row.device_type == DeviceType.CPU else "cuda",
            bool(row.is_user_annotation),
        ): TorchRow(
            row.count,
            *(
                row.self_cpu_time_total,
                row.cpu_time_total,
                row.self_device_time_total,
                row.device_time_total,
            ),
        )
        for row in table.key_averages()
    }


def _kineto_event(event: dict[str, Any], ids: set[object], devices: Any) -> _Event:  # noqa: ANN401  an enum of torch's
    args, cat = event["args"], event["cat"]
    start_ns = time_ns(event["ts"])
    end_ns = start_ns + time_ns(event["dur"])
    if cat == "gpu_user_annotation":
        start_ns, end_ns = start_ns + 1, end_ns - 1
    is_frontend, on_device = cat in _FRONTEND, cat in _ON_DEVICE
    own = args.get("External id", 0)
    links = not is_frontend and cat != "gpu_user_annotation" and own in ids
    fields = {
        "name": event["name"],
        "start_ns": start_ns,
        "end_ns": end_ns,
        "device_type": devices.CUDA if on_device else devices.CPU,
        "correlation_id": own if is_frontend else args.get("correlation", 0),
        "external_id": own if is_frontend else 0,
        "linked_correlation_id": own if links else 0,
        "start_thread_id": event["tid"] if is_frontend or links else _ENDING,
        "end_thread_id": event["tid"] if is_frontend or links else _ENDING,
        "is_user_annotation": cat in ("user_annotation", "gpu_user_annotation"),
        "is_python_function": cat == "python_function",
        "activity_type": cat,
        "device_index": event["pid"] if on_device else 0,
    }
    return _Event(fields)


class _Event:
    """Answers each method of ``_KinetoEvent``: with what a trace says, else with nothing."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  of whatever type the method has
        value = self._fields.get(name, _NOTHING.get(name, 0))
        return lambda: value


_NOTHING: dict[str, Any] = {
    **dict.fromkeys(("is_hidden_event", "is_async"), False),
    **dict.fromkeys(
        ("shapes", "concrete_inputs", "stack", "structured_input_shapes", "dtypes"), ()
    ),
    **{name: {} for name in ("kwinputs", "extra_meta", "typed_metadata")},
    "overload_name": "",
}


def test_self_time_is_without_what_was_called_on_the_same_thread() -> None:
    totals = (
        TraceScript()
        .op("a", 0, 10)
        .op("b", 1, 4)
        .op("c", 2, 1)
        .op("b", 6, 2)
        .op("other", 3, 5, tid=2)
        .totals()
    )
    assert (totals["a@cpu"].cpu_total_ns, totals["a@cpu"].self_cpu_ns) == (10_000, 4_000)
    assert (totals["b@cpu"].calls, totals["b@cpu"].cpu_total_ns, totals["b@cpu"].self_cpu_ns) == (
        2,
        6_000,
        5_000,
    )
    assert totals["other@cpu"].self_cpu_ns == 5_000
    totals = TraceScript().op("a", 0, 10).op("b", 5, 10).totals()
    assert totals["a@cpu"].self_cpu_ns == totals["b@cpu"].self_cpu_ns == 10_000
    totals = TraceScript().op("b", 0, 4).op("a", 0, 10).totals()
    assert (totals["a@cpu"].self_cpu_ns, totals["b@cpu"].self_cpu_ns) == (6_000, 4_000)
    totals = TraceScript().op("a", 0, 5).op("a", 5, 0).totals()
    assert totals["a@cpu"].calls == 2


def test_steps_of_the_profiler_are_one_row_and_odd_places_cost_the_shapes_only() -> None:
    script = TraceScript().op("ProfilerStep#3", 0, 1, cat="user_annotation")
    totals = script.op("ProfilerStep#4", 2, 1, cat="user_annotation").totals()
    assert {name: sums.calls for name, sums in totals.items()} == {"ProfilerStep*@cpu": 2}
    odd: dict[str, object] = {
        "Input Dims": "[1, 2]",
        "External id": "four",
        "Sequence number": None,
    }
    totals = TraceScript().op("aten::mm", 0, 1, args=odd).totals()
    assert totals["aten::mm@cpu"] == Totals(calls=1, self_cpu_ns=1_000, cpu_total_ns=1_000)


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


def test_shapes_are_kept_apart_or_summed_and_a_list_of_tensors_has_none() -> None:
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


pytestmark = pytest.mark.requires("torch")


def ours(script: CudaScript) -> dict[tuple[str, str, bool], TorchRow]:
    sums = by_name(sum_up(script.spans()))
    return {
        (key.name, key.device, key.is_annotation): TorchRow(
            one.calls,
            *(
                ns / 1000
                for ns in (one.self_cpu_ns, one.cpu_total_ns, one.self_cuda_ns, one.cuda_total_ns)
            ),
        )
        for key, one in sums.items()
    }


def compare(script: CudaScript) -> None:
    theirs, own = key_averages(script.events), ours(script)
    assert theirs.keys() == own.keys()
    for key, row in theirs.items():
        assert own[key].calls == row.calls, key
        for field in ("self_cpu_us", "cpu_total_us", "self_cuda_us", "cuda_total_us"):
            assert getattr(own[key], field) == pytest.approx(getattr(row, field), abs=1e-3), (
                key,
                field,
            )


def training_step(script: CudaScript, at: float, number: int) -> None:
    """Add a step: a copy, an operator within another, a range, the optimizer on two streams, a
    graph and Triton.
    """
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
    script.launch(
        "triton_poi_fused_add", at + 335, 5, (at + 350, 7), op=first + 8, call="cuLaunchKernel"
    )
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
    script = (
        CudaScript()
        .host("aten::sum", 0, 100, 1)
        .host("aten::sum", 10, 80, 2)
        .host("aten::fill_", 20, 10, 3)
    )
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
                script.launch(
                    f"k{chance.randrange(3)}",
                    at,
                    took,
                    (start, 5.125),
                    op=op,
                    stream=stream,
                    tid=tid,
                )
            if cat == "user_annotation":
                script.annotation(f"range{number}", at, 100, number).sync(at, 9)
    compare(script)
