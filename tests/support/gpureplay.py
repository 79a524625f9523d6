"""A driver that answers as a real one did: what ``benchmarks/gpu/gpu_recorder.py`` wrote down, in the
library's place.

The real pynvml calls it, with the bytes and return codes of that device. A call gets the last
answer to the same question that was recorded before now. Four functions are asked otherwise than
they were recorded: samples and samples of processes from a stamp on, single counters, single
metrics; these are taken out of what was recorded as a whole.
"""

from __future__ import annotations

import bisect
import ctypes
import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
from gpu.gpu_recorder import described, memory_of

_NOT_SUPPORTED, _NOT_FOUND, _INSUFFICIENT_SIZE = 3, 6, 7
_WITH_OPAQUE_ARGUMENTS = ("nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlDeviceGetFieldValues")
Row = dict[str, Any]


class ReplayLibrary:
    """Functions of NVML; ``now_ns`` says which time it is, by the wall clock of the recording."""

    def __init__(self, path: Path, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._rows: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        self._functions = set()
        with gzip.open(path, "rt") as file:
            for line in file:
                row = json.loads(line)
                self._functions.add(row["call"])
                self._rows[key_of(row["call"], row["args"])].append(row)
        self.start_ns = min(rows[0]["realtime_ns"] for rows in self._rows.values())

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in self._functions:
            raise AttributeError(name)
        since = {"nvmlDeviceGetSamples": 2, "nvmlDeviceGetProcessUtilization": 3}.get(name)
        if since is not None:
            return lambda *args: self._samples(name, since, args)
        return lambda *args: self._answer(name, args)

    def _last(self, name: str, described_args: list[Any]) -> Row | None:
        rows = self._rows.get(key_of(name, described_args), [])
        place = bisect.bisect_right(rows, self._now_ns(), key=lambda row: int(row["realtime_ns"]))
        return rows[max(place - 1, 0)] if rows else None

    def _answer(self, name: str, args: tuple[Any, ...]) -> int:
        row = self._last(name, [described(arg) for arg in args])
        if row is None:
            return _NOT_SUPPORTED
        for arg, was in zip(args, row["args"], strict=True):
            target = memory_of(arg)
            if target is None:
                continue
            given = bytes.fromhex(was["bytes"])
            if name == "nvmlGpmMetricsGet":
                _take_metrics(target, given)
            elif name == "nvmlDeviceGetFieldValues":
                _take_fields(target, given)
            else:
                ctypes.memmove(
                    ctypes.addressof(target), given, min(len(given), ctypes.sizeof(target))
                )
        return int(row["code"])

    def _samples(self, name: str, since: int, args: tuple[Any, ...]) -> int:
        """Give what was recorded with stamp 0, from the stamp on that is asked for."""
        is_plain = name == "nvmlDeviceGetSamples"
        kind = pynvml.c_nvmlSample_t if is_plain else pynvml.c_nvmlProcessUtilizationSample_t
        buffer, count = (args[5], args[4]._obj) if is_plain else (args[1], args[2]._obj)
        asked = [described(arg) for arg in args]
        asked[since], asked[5 if is_plain else 1] = 0, {"bytes": ""}
        row = self._last(name, asked)
        if row is None or row["code"]:
            sizes = self._last(name, [None if arg == {"bytes": ""} else arg for arg in asked])
            return int((row or sizes or {"code": _NOT_SUPPORTED})["code"])
        recorded = [row["args"][place]["bytes"] for place in ((5, 4) if is_plain else (1, 2))]
        there = int.from_bytes(bytes.fromhex(recorded[1]), "little")
        found = [
            sample
            for sample in (kind * there).from_buffer_copy(
                bytes.fromhex(recorded[0])[: there * ctypes.sizeof(kind)]
            )
            if sample.timeStamp > args[since].value
        ]
        had, count.value = count.value, len(found)
        if buffer is None:
            count.value = max(len(found), 1)
            return 0 if is_plain else _INSUFFICIENT_SIZE
        if is_plain:
            args[3]._obj.value = int.from_bytes(bytes.fromhex(row["args"][3]["bytes"]), "little")
        for place, sample in enumerate(found[:had]):
            ctypes.memmove(
                ctypes.byref(buffer, place * ctypes.sizeof(kind)),
                ctypes.byref(sample),
                ctypes.sizeof(kind),
            )
        return 0 if found else _NOT_FOUND


def key_of(name: str, described_args: list[Any]) -> tuple[Any, ...]:
    """Return what makes two calls the same question: numbers and handles, and where there is memory
    to write to.
    """
    if name in _WITH_OPAQUE_ARGUMENTS:
        handle = described_args[0]
        return (name, handle.get("pointer") if isinstance(handle, dict) else None)
    parts = [
        arg.get("pointer", "memory") if isinstance(arg, dict) else arg for arg in described_args
    ]
    return (name, *parts)


def _take_metrics(target: Any, given: bytes) -> None:  # noqa: ANN401  of ctypes
    was = type(target).from_buffer_copy(given)
    values = {was.metrics[place].metricId: was.metrics[place] for place in range(was.numMetrics)}
    for place in range(target.numMetrics):
        known = values.get(target.metrics[place].metricId)
        target.metrics[place].nvmlReturn = _NOT_SUPPORTED if known is None else known.nvmlReturn
        target.metrics[place].value = 0.0 if known is None else known.value


def _take_fields(target: Any, given: bytes) -> None:  # noqa: ANN401  of ctypes
    was = (
        pynvml.c_nvmlFieldValue_t * (len(given) // ctypes.sizeof(pynvml.c_nvmlFieldValue_t))
    ).from_buffer_copy(given)
    values = {(field.fieldId, field.scopeId): field for field in was}
    for place, field in enumerate(target):
        known = values.get((field.fieldId, field.scopeId))
        if known is not None:
            target[place] = known
