"""Has torch's own Python code sum a trace of Kineto's up, as it does with the events of its profiler.

``torch.autograd.profiler`` gets them from C++ as ``_KinetoEvent``. Where each field comes from in a trace (torch 2.15,
``torch/csrc/profiler/collection.cpp``, ``TransferEvents``, and libkineto's ``output_json.cpp``):

- ``device_type``: CUDA of work and ranges of a GPU, CPU of all else (``kineto_shim.cpp``, ``deviceTypeFromActivity``).
- ``correlation_id``: of what torch reports its ``External id``, of all else that of the driver.
- ``linked_correlation_id``: of calls and work their ``External id``, where an operator was open; 0 of all else, ranges
  of a GPU too, which ``createUserGpuSpan`` links to nothing.
- ``start_thread_id``: of what is linked to no operator that of the thread that ends the profiler (``setKinetoTID``):
  with windows, one that has no operators.
- Times are those before a range is widened for viewers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from profd.daemon.windows.trace import time_ns

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
    """Return torch's ``key_averages()`` of the events of a trace by name, device, and whether it is a range."""
    from torch._C._autograd import DeviceType
    from torch.autograd.profiler import profile
    from torch.autograd.profiler_util import EventList

    ids = {event["args"].get("External id") for event in events if event["cat"] in _FRONTEND}
    found = [_kineto_event(event, ids, DeviceType) for event in events if event["cat"] not in ("cuda_sync", "Trace")]
    begun_ns = min(event.start_ns() for event in found)
    result = SimpleNamespace(events=lambda: found, trace_start_ns=lambda: begun_ns)
    parsed = profile._parse_kineto_results(SimpleNamespace(use_device="cuda"), result)  # type: ignore[arg-type]
    table: Any = EventList(parsed, use_device="cuda", profile_memory=False, with_flops=False)  # type: ignore[no-untyped-call]
    table._build_tree()
    return {
        (row.key, "cpu" if row.device_type == DeviceType.CPU else "cuda", bool(row.is_user_annotation)): TorchRow(
            row.count, *(row.self_cpu_time_total, row.cpu_time_total, row.self_device_time_total, row.device_time_total)
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
    **dict.fromkeys(("shapes", "concrete_inputs", "stack", "structured_input_shapes", "dtypes"), ()),
    **{name: {} for name in ("kwinputs", "extra_meta", "typed_metadata")},
    "overload_name": "",
}
