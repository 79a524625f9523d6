"""What reducing a large trace takes: seconds, and the memory of the process that reads it.

Run on a quiet machine: ``python benchmarks/run.py traces [--runs 5]``, about a minute; writes
its section of ``docs/measurements.md`` and ends with 1 where a run took more than is promised. The
trace is made up, as torch would write it: layers of an operator that calls another, with shapes and
memory, step after step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from common.measurements import write_section

from profd.daemon.windows.reduction import Reduction

TRACE_MB = (25, 100, 400)
MOST_S_OF_100_MB, MOST_BYTES = 10.0, 150e6
LAYERS = 1000


def write_trace(path: Path, trace_bytes: int) -> None:
    """Write a trace of that size, and a little more."""
    with path.open("wb") as file:
        file.write(b'{"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [\n')
        step = 0
        while file.tell() < trace_bytes:
            file.write(b"".join(layer(step * LAYERS + number) for number in range(LAYERS)))
            file.write(
                line(
                    "Optimizer.step#SGD.step",
                    (step + 1) * LAYERS * 10.0 - 1,
                    1.0,
                    0,
                    "user_annotation",
                )
            )
            step += 1
        file.write(b'{"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 0}]}')


def layer(number: int) -> bytes:
    """Return an operator that calls another, which takes memory."""
    at_us = number * 10.0
    return (
        line("aten::linear", at_us, 8.0, 2 * number + 1)
        + line("aten::addmm", at_us + 1, 6.0, 2 * number + 2)
        + b'{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, '
        b'"tid": 7, "ts": %.3f, '
        b'"args": {"Total Allocated": 37632, "Bytes": 64, "Device Id": -1, "Device Type": 0, "Ev '
        b'Idx": 5268}},\n' % (at_us + 2)
    )


def line(name: str, at_us: float, length_us: float, number: int, category: str = "cpu_op") -> bytes:
    """Return one event."""
    details = {
        "External id": number,
        "Sequence number": number,
        "Concrete Inputs": ["", "", "", "1", "1"],
        "Input type": ["float", "float", "float", "Scalar", "Scalar"],
        "Input Strides": [[1], [512, 1], [1, 512], [], []],
        "Input Dims": [[64], [8, 512], [512, 64 + number % 7], [], []],
    }
    event = {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 7,
        "tid": 7,
        "ts": at_us,
        "dur": length_us,
    }
    return msgspec.json.encode({**event, "args": details}) + b",\n"


def measure(trace: Path) -> tuple[float, int]:
    """Return the CPU seconds and the most bytes of a process that reduces the trace."""
    words = [sys.executable, "-m", "profd.daemon.windows.reduction"]
    with trace.open("rb") as text, tempfile.TemporaryFile() as answer:
        process = subprocess.Popen(words, stdin=text, stdout=answer)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        answer.seek(0)
        found = msgspec.msgpack.decode(answer.read(), type=Reduction | tuple[str, str])
    if isinstance(found, tuple):
        sys.exit(f"the trace was not reduced: {found[0]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> int:
    """Measure; returns 1 where a run took more than is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each size")
    options = parser.parse_args()
    lines = [
        "| trace | runs | CPU, median | CPU, most | most memory |",
        "|---|---:|---:|---:|---:|",
    ]
    holds = True
    for megabytes in TRACE_MB:
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            write_trace(trace, megabytes * 1_000_000)
            outcomes = [measure(trace) for _ in range(options.runs)]
        took_s, most_bytes = [seconds for seconds, _ in outcomes], max(size for _, size in outcomes)
        lines.append(
            f"| {megabytes} MB | {options.runs} | {statistics.median(took_s):.1f} s | "
            f"{max(took_s):.1f} s | {most_bytes / 1e6:.0f} MB |"
        )
        print(lines[-1], flush=True)
        holds &= max(took_s) <= MOST_S_OF_100_MB * megabytes / 100 and most_bytes < MOST_BYTES
    write_section(
        "Large torch traces",
        "`benchmarks/trust/traces.py`: a process reduces a made-up trace, with changes of memory, "
        "and packs it. Its memory is to be at most 150 MB, whatever the size.",
        lines,
    )
    return 0 if holds else 1
