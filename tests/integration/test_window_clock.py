"""Samples and operators on one clock: a planted range of 200 ms is where its samples are."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from launching import DEADLINE_S, PROFD
from sessions import PROGRAMS, wait_ready

from profd.daemon.analyze.issuers import issuing_lines
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.torchtraces import decode, selected_windows, trace_text
from profd.daemon.store.reader import RunReader

pytest.importorskip("torch")

OFFSET_NS = 15_000_000
FEWEST_SAMPLES = 10
"""Of some 75 in the range, in a window of 1.5 s at 100 Hz; the machine may be slow."""
BUDGET = ("--budget", "80")
"""With the default one a young run is sampled less often after its imports: here it is about times."""
_TOGETHER_NS = 100_000_000
"""Pieces of one stay in the function lie nearer together than this, two stays farther apart."""

Span = tuple[int, int]


def record(path: Path) -> RunReader:
    """Record the program with two windows of it, to the end."""
    pipe = subprocess.PIPE
    command = [sys.executable, str(PROGRAMS / "planted.py")]
    words = [PROFD, "run", "--headless", "--quiet", "--torch-window", *BUDGET, "-o", str(path), "--", *command]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        wait_ready(process)
        for _ in range(2):
            asked = [PROFD, "window", str(path), "--seconds", "1.5", "--no-shapes", "--limit", "1"]
            subprocess.run(asked, check=True, capture_output=True, timeout=DEADLINE_S)
        process.communicate("\n", timeout=DEADLINE_S)
    return RunReader(path)


def ranges(reader: RunReader) -> list[Span]:
    """Return when the range was open, by the traces; without those that a window cuts off."""
    found = []
    for window in selected_windows(reader, Selection()):
        text = trace_text(reader, window)
        assert text is not None
        trace = decode(window, text)
        spans = [(trace.start_ns(event), trace.end_ns(event)) for event in trace.events if event.name == "planted"]
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


def test_planted_range_is_where_its_samples_are(
    tmp_path: Path, profd_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with record(tmp_path / "run.profd") as reader:
        sampled = stays(reader)
        issuers = [issuing_lines(reader, window)["planted"] for window in selected_windows(reader, Selection())]
        offsets = [
            min((start + end - first - last) / 2 for first, last in sampled if first < end and start < last)
            for start, end in ranges(reader)
        ]
    assert len(offsets) >= 4
    assert abs(statistics.median(offsets)) <= OFFSET_NS, offsets
    for lines in issuers:
        assert {line.module_path for line in lines} == {"planted.py"}
        assert sum(line.samples for line in lines) >= FEWEST_SAMPLES
