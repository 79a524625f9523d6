"""How far samples and operators of a torch window are apart on one clock: a planted range and its
function.

Run on a quiet machine, with torch: ``python benchmarks/run.py windowclock [--runs 10]``, about
two minutes; writes its section of ``docs/measurements.md`` and ends with 1 where the offset may be
larger than promised. A run's offset is the median over its ranges; the bound is that of Student's t
over the runs.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common.measurements import write_section
from support.folders import PROGRAMS

from profd.daemon.analyze.confidence import student_95
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.torchtraces import decode, selected_windows, trace_text
from profd.daemon.store.reader import RunReader

PROGRAM = PROGRAMS / "planted.py"
PROFD = [sys.executable, "-m", "profd"]
OFFSET_LIMIT_MS = 15.0
WINDOWS = 2
_TOGETHER_NS = 100_000_000
"""Pieces of one stay in the function lie nearer together than this, two stays farther apart."""
"""Student's t for 95 %, two-sided, by the degrees of freedom."""

Span = tuple[int, int]


def record(path: Path) -> None:
    """Record the program with its windows, to the end."""
    # With the default budget a young run is sampled less often after its imports: here it is about
    # times.
    words = [
        *PROFD,
        "run",
        "--headless",
        "--quiet",
        "--torch-window",
        "--budget",
        "80",
        "-o",
        str(path),
        "--",
    ]
    pipe, environment = subprocess.PIPE, {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*words, sys.executable, str(PROGRAM)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(WINDOWS):
            asked = [*PROFD, "window", str(path), "--seconds", "1.5", "--no-shapes", "--limit", "1"]
            subprocess.run(asked, check=True, capture_output=True)
        process.communicate("\n")


def ranges(reader: RunReader) -> list[Span]:
    """Return when the range was open, by the traces; without those that a window cuts off."""
    found = []
    for window in selected_windows(reader, Selection()):
        text = trace_text(reader, window)
        assert text is not None
        trace = decode(window, text)
        spans = [
            (trace.start_ns(event), trace.end_ns(event))
            for event in trace.events
            if event.name == "planted"
        ]
        found += [span for span in spans if window.start_ns < span[0] and span[1] < window.end_ns]
    return found


def stays(reader: RunReader) -> list[Span]:
    """Return when the main thread was in the function, by the samples."""
    process = reader.windows()[0].process
    (thread,) = [row for row in reader.main_threads() if row.process == process]
    found: list[Span] = []
    for interval in reader.intervals():
        functions = {frame.function for frame in reader.frames_of(interval.stack)}
        if interval.thread != thread.id or "planted" not in functions:
            continue
        end_ns = interval.start_ns + interval.duration_ns
        if found and interval.start_ns - found[-1][1] < _TOGETHER_NS:
            found[-1] = (found[-1][0], end_ns)
        else:
            found.append((interval.start_ns, end_ns))
    return found


def measure() -> float:
    """Return by how many ms the samples of one run are late, or early where it is negative."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.profd"
        record(path)
        with RunReader(path) as reader:
            sampled = stays(reader)
            offsets = [
                min(
                    (start + end - first - last) / 2
                    for first, last in sampled
                    if first < end and start < last
                )
                for start, end in ranges(reader)
            ]
    return -statistics.median(offsets) / 1e6


def main() -> int:
    """Measure the runs; returns 1 where the bound is beyond what is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, choices=range(2, 31), metavar="COUNT", default=10)
    options = parser.parse_args()
    offsets_ms = [measure() for _ in range(options.runs)]
    mean_ms = statistics.mean(offsets_ms)
    margin_ms = (
        student_95(options.runs - 1) * statistics.stdev(offsets_ms) / math.sqrt(options.runs)
    )
    row = (
        f"| {options.runs} | {mean_ms:+.2f} ms | ± {margin_ms:.2f} ms | "
        f"{max(offsets_ms, key=abs):+.2f} ms |"
    )
    print(row)
    write_section(
        "Samples and operators on one clock",
        "`benchmarks/truth/windowclock.py`: how late samples of a function are, by the range of "
        f"torch that it opens; the median over the ranges of {WINDOWS} windows a run, with "
        "the 95 % bound of the mean over runs.",
        ["| runs | mean | 95 % | farthest |", "|---|---|---|---|", row],
    )
    return 0 if abs(mean_ms) + margin_ms <= OFFSET_LIMIT_MS else 1
