"""A trace of 100 MB: read, reduced and stored in time and in bounds."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from synthetic import MAIN, STARTED_NS, main_process, run_started
from training_stacks import describe

from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import WindowTaken
from profd.daemon.store.writer import RunWriter
from profd.daemon.windows.reduction import Reduction, reduce_apart

TRACE_BYTES = 100_000_000
IN_TIME_S = 10.0
LIMIT_BYTES = 1 << 30
LAYERS = 1000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Layers of an operator that calls another, with shapes and memory, step after step, as torch would write them."""
    path = tmp_path_factory.mktemp("large") / "trace.json"
    with path.open("wb") as file:
        file.write(b'{"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [\n')
        step = 0
        while file.tell() < TRACE_BYTES:
            file.write(b"".join(layer(step * LAYERS + number) for number in range(LAYERS)))
            file.write(line("Optimizer.step#SGD.step", (step + 1) * LAYERS * 10.0 - 1, 1.0, 0, "user_annotation"))
            step += 1
        file.write(b'{"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 0}]}')
    return path


def layer(number: int) -> bytes:
    at_us = number * 10.0
    return (
        line("aten::linear", at_us, 8.0, 2 * number + 1)
        + line("aten::addmm", at_us + 1, 6.0, 2 * number + 2)
        + b'{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 7, "ts": %.3f, '
        b'"args": {"Total Allocated": 37632, "Bytes": 64, "Device Id": -1, "Device Type": 0, "Ev Idx": 5268}},\n'
        % (at_us + 2)
    )


def line(name: str, at_us: float, length_us: float, number: int, category: str = "cpu_op") -> bytes:
    details = {
        "External id": number,
        "Sequence number": number,
        "Concrete Inputs": ["", "", "", "1", "1"],
        "Input type": ["float", "float", "float", "Scalar", "Scalar"],
        "Input Strides": [[1], [512, 1], [1, 512], [], []],
        "Input Dims": [[64], [8, 512], [512, 64 + number % 7], [], []],
    }
    event = {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": 7, "ts": at_us, "dur": length_us}
    return msgspec.json.encode({**event, "args": details}) + b",\n"


def test_large_trace_is_reduced_in_bounded_memory(large: Path) -> None:
    words = [sys.executable, "-m", "profd.daemon.windows.reduction", str(large)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_maxrss * 1024 < LIMIT_BYTES


def test_large_trace_is_reduced_and_stored_in_time(large: Path, tmp_path: Path) -> None:
    begun = time.monotonic()
    reduction = asyncio.run(reduce_apart(large, begins_with_step=False))
    store(reduction, tmp_path / "run.profd")
    assert time.monotonic() - begun < IN_TIME_S
    with RunReader(tmp_path / "run.profd") as reader:
        (window,) = reader.windows()
        assert window.trace_bytes == large.stat().st_size
        assert window.kept_bytes is not None
        calls = dict.fromkeys(("aten::linear", "aten::addmm"), 0)
        for operator in reader.operators(window.id):
            if operator.name in calls:
                calls[operator.name] += operator.calls
                assert operator.self_cpu_ns == operator.calls * (2_000 if operator.name == "aten::linear" else 6_000)
                assert operator.cpu_bytes == operator.calls * 64
        assert calls["aten::linear"] == calls["aten::addmm"] == (len(reader.window_steps(window.id)) + 1) * LAYERS


def store(reduction: Reduction, path: Path) -> None:
    writer = RunWriter(path, run_started(), describe)
    writer.put(main_process())
    writer.put(
        WindowTaken(
            MAIN,
            STARTED_NS,
            "kineto",
            STARTED_NS,
            start_ns=reduction.start_ns,
            end_ns=reduction.end_ns,
            steps=reduction.steps,
            operators=reduction.operators,
            trace_bytes=reduction.trace_bytes,
            trace=reduction.packed,
        )
    )
    writer.close()
    assert writer.failure is None
