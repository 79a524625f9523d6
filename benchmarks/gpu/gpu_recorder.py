"""Records what an NVIDIA driver answers, call by call and as it answers, for tests that replay it.

``python benchmarks/gpu/gpu_recorder.py nvml-raw.jsonl.gz --seconds 20`` on a machine with a GPU. It
needs pynvml alone, and profd nowhere. Each line of the file is one call into the C library, in
JSON:

- ``call``: the function; ``code``: what it returned, an ``nvmlReturn_t``
- ``realtime_ns``, ``boottime_ns``, ``monotonic_ns``: when it was called, by three clocks;
  ``took_ns``: its latency
- ``args``: the arguments in order. A number is one that was passed, ``null`` a null pointer,
  ``{"pointer": n}`` a handle, and ``{"bytes": "…"}`` what the driver left in the memory that it was
  given, in hex

Every 20 ms: both buffers of samples from 0 on, utilization rates, counters, lists of processes in
both versions, samples of processes, memory, power and energy. Every 120 ms: GPM, which wants more
than 100. Every second: clocks, temperature, throttle reasons, link. With ``--activity`` instead
every 10 ms: GPM and the buffer of utilization from the last stamp on, which shows when the driver
makes them anew.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pynvml

EACH_S = 0.02
GPM_S = 0.12
METRICS = (1, 2, 3, 5, 10, 20, 21, 60, 61)
_FIELDS = [(197, 0), (198, 0), (138, 0xFFFFFFFF), (139, 0xFFFFFFFF)]
_ONCE = (
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMigMode",
)
_ONCE_METRICS = ("nvmlDeviceGetMaxPcieLinkGeneration", "nvmlGpmQueryDeviceSupport")
_LISTS = [
    f"nvmlDeviceGet{kind}RunningProcesses_{version}"
    for kind in ("Compute", "Graphics", "MPSCompute")
    for version in ("v2", "v3")
]
_OFTEN: tuple[tuple[Any, ...], ...] = (
    ("nvmlDeviceGetSamples", 1, 0),
    ("nvmlDeviceGetSamples", 0, 0),
    ("nvmlDeviceGetUtilizationRates",),
    ("nvmlDeviceGetFieldValues", _FIELDS),
    ("nvmlDeviceGetProcessUtilization", 0),
    ("nvmlDeviceGetMemoryInfo",),
    ("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2),
    ("nvmlDeviceGetPowerUsage",),
    ("nvmlDeviceGetTotalEnergyConsumption",),
    *((name,) for name in _LISTS),
)
_SELDOM: tuple[tuple[Any, ...], ...] = (
    ("nvmlDeviceGetClockInfo", 1),
    ("nvmlDeviceGetClockInfo", 2),
    ("nvmlDeviceGetTemperature", 0),
    ("nvmlDeviceGetCurrentClocksEventReasons",),
    ("nvmlDeviceGetEnforcedPowerLimit",),
    ("nvmlDeviceGetCurrPcieLinkGeneration",),
    ("nvmlDeviceGetCurrPcieLinkWidth",),
)


def stamps() -> tuple[int, int, int]:
    """Return the wall clock, the time since boot and the monotonic clock, in ns."""
    return time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.monotonic_ns()


class RecordingLibrary:
    """Stands in the place of pynvml's library: passes each call on and writes it down."""

    def __init__(
        self,
        library: Any,  # noqa: ANN401  ctypes.CDLL
        file: TextIO,
        take_stamps: Callable[[], tuple[int, int, int]] = stamps,
    ) -> None:
        self._library = library
        self._file = file
        self._take_stamps = take_stamps

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(self._library, name)

        def call(*args: Any) -> int:  # noqa: ANN401  whatever pynvml passes
            realtime_ns, boottime_ns, monotonic_ns = self._take_stamps()
            begun_ns = time.monotonic_ns()
            code: int = function(*args)
            row = {
                "call": name,
                "code": code,
                "realtime_ns": realtime_ns,
                "boottime_ns": boottime_ns,
                "monotonic_ns": monotonic_ns,
                "took_ns": time.monotonic_ns() - begun_ns,
                "args": [described(arg) for arg in args],
            }
            self._file.write(json.dumps(row) + "\n")
            return code

        return call


def described(arg: Any) -> Any:  # noqa: ANN401  of ctypes
    """Return an argument as it stands in the file, after the call."""
    target = memory_of(arg)
    if target is not None:
        return {"bytes": ctypes.string_at(ctypes.addressof(target), ctypes.sizeof(target)).hex()}
    if isinstance(arg, ctypes._Pointer):
        return {"pointer": ctypes.cast(arg, ctypes.c_void_p).value or 0}
    return getattr(arg, "value", arg)


def memory_of(arg: Any) -> Any:  # noqa: ANN401  of ctypes
    """Return what a function may write to by this argument; None where it may not."""
    return getattr(arg, "_obj", arg if isinstance(arg, ctypes.Array | ctypes.Structure) else None)


def ask(name: str, *args: Any) -> Any:  # noqa: ANN401  what pynvml takes and gives
    """Call a function of pynvml; None where the driver, or pynvml, does not have it."""
    with contextlib.suppress(pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, AttributeError):
        return getattr(pynvml, name)(*args)
    return None


class Metrics:
    """GPM of one device: two snapshots in turn."""

    def __init__(self, device: Any) -> None:  # noqa: ANN401
        self._device = device
        self._snapshots = [ask("nvmlGpmSampleAlloc") for _ in range(2)]
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version, self._request.numMetrics = 1, len(METRICS)
        for place, number in enumerate(METRICS):
            self._request.metrics[place].metricId = number

    def take(self) -> None:
        self._snapshots.reverse()
        ask("nvmlGpmSampleGet", self._device, self._snapshots[1])
        self._request.sample1, self._request.sample2 = self._snapshots
        ask("nvmlGpmMetricsGet", self._request)


def record(seconds: float, pause: Callable[[float], object] = time.sleep) -> None:
    """Ask every device for ``seconds``; ``pynvml.nvmlLib`` writes down what is asked."""
    pynvml.nvmlInit()
    ask("nvmlSystemGetDriverVersion")
    devices = [
        device
        for index in range(ask("nvmlDeviceGetCount") or 0)
        if (device := by_index(index)) is not None
    ]
    metrics = [found for device in devices for found in metrics_of(device)]
    for round_number in range(round(seconds / EACH_S)):
        for device in devices:
            for name, *what in _OFTEN:
                ask(name, device, *what)
            if round_number % round(1 / EACH_S) == 0:
                for name, *what in _SELDOM:
                    ask(name, device, *what)
        if round_number % round(GPM_S / EACH_S) == 0:
            for one in metrics:
                one.take()
        pause(EACH_S)
    pynvml.nvmlShutdown()


def record_activity(seconds: float) -> None:
    """Ask the first device for GPM and new samples of utilization, each 10 ms."""
    pynvml.nvmlInit()
    device = by_index(0)
    metrics, stamp_us = list(metrics_of(device)), 0
    for _ in range(round(seconds / 0.01)):
        for one in metrics:
            one.take()
        _, samples = ask("nvmlDeviceGetSamples", device, 1, stamp_us) or (None, [])
        stamp_us = max([stamp_us, *(sample.timeStamp for sample in samples)])
        time.sleep(0.01)
    pynvml.nvmlShutdown()


def by_index(index: int) -> Any:  # noqa: ANN401
    device = ask("nvmlDeviceGetHandleByIndex", index)
    for name in (*_ONCE, *_ONCE_METRICS) if device is not None else ():
        ask(name, device)
    return device


def metrics_of(device: Any) -> Iterator[Metrics]:  # noqa: ANN401
    support = ask("nvmlGpmQueryDeviceSupport", device)
    if support is not None and support.isSupportedDevice:
        yield Metrics(device)


def main() -> None:
    """Record to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--activity", action="store_true")
    arguments = parser.parse_args()
    pynvml.nvmlInit()
    with gzip.open(arguments.path, "wt") as file:
        pynvml.nvmlLib = RecordingLibrary(pynvml.nvmlLib, file)
        pynvml._nvmlGetFunctionPointer_cache.clear()
        record_activity(arguments.seconds) if arguments.activity else record(arguments.seconds)


if __name__ == "__main__":
    main()
