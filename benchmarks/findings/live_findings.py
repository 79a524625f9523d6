"""How soon a finding is in the dashboard, in metrics and in the service's log when its cause
begins, and how soon gone.

``python benchmarks/run.py live_findings [--runs 5]``, about two minutes a run; writes its section
of ``docs/measurements.md``. A training under profd begins to stall, and stops stalling, on command.
"""

from __future__ import annotations

import argparse
import functools
import io
import math
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from common.load import LOADS
from common.measurements import write_section

from profd.daemon.analyze.confidence import student_95
from profd.daemon.findings.finding import INFO
from profd.daemon.metrics.catalog import FINDING
from profd.daemon.metrics.runs import RunWatch
from profd.daemon.paths import list_runs
from profd.daemon.service import supervisor
from profd.daemon.service.log import JsonLog
from profd.daemon.service.reports import Incidents
from profd.daemon.service.storage import Entry
from profd.daemon.store.records import Identity
from profd.tui.feed import Feed, SnapshotTaken

PROGRAM = LOADS / "stalling.py"
RULE = "input-bound-in-process"
BOUNDS_S = {
    "in the dashboard after its cause began": 20.0,
    "in metrics then": 20.0,
    "in the service's log then": 20.0,
    "gone from the dashboard after its cause ended": 60.0,
}
LONGEST_S = 300.0


class Training:
    """A training under profd that begins to stall, and stops stalling, with each line that it
    reads.
    """

    def __init__(self) -> None:
        words = [
            sys.executable,
            "-m",
            "profd",
            "run",
            "--headless",
            "--quiet",
            "--",
            sys.executable,
            str(PROGRAM),
        ]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def expect(self, word: bytes) -> None:
        """Wait until the script says a word."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word

    def turn(self, word: bytes) -> float:
        """Have the script begin or end to stall; return when it did."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        self.expect(word)
        return time.monotonic()


class Posted:
    """What the dashboard's feed posts of a run."""

    def __init__(self, run_file: Path) -> None:
        self._posted: queue.Queue[object] = queue.Queue()
        self._feed = Feed(run_file, self._posted.put)
        self._thread = threading.Thread(target=self._feed.run)
        self._thread.start()

    def until(self, *, is_found: bool) -> float:
        """Wait until the finding is shown as a warning, or is not shown at all.

        Return when that was.
        """
        deadline_s = time.monotonic() + LONGEST_S
        while True:
            message = self._posted.get(timeout=max(deadline_s - time.monotonic(), 0.01))
            if not isinstance(message, SnapshotTaken) or not message.snapshot.is_diagnosed:
                continue
            shown = [one.severity for one in message.snapshot.findings if one.rule == RULE]
            if any(severity != INFO for severity in shown) if is_found else not shown:
                return time.monotonic()

    def close(self) -> None:
        """End the feed."""
        self._feed.stop()
        self._thread.join()


class Log:
    """What the service would say of a run, at the times at which it looks."""

    def __init__(self, run_file: Path) -> None:
        self._said = io.BytesIO()
        self._incidents = Incidents(JsonLog(self._said), lambda _: None)
        self._entry = Entry(run_file.stem, Identity(1, 1), 1, "", "")
        self._begun_s = time.monotonic()

    def has_finding(self) -> bool:
        """Wait until the service would look, and say whether it has said a finding then."""
        every_s = supervisor.INCIDENTS_EVERY_S
        time.sleep(every_s - (time.monotonic() - self._begun_s) % every_s)
        self._incidents.look({self._entry.run_id: self._entry})
        return b'"finding"' in self._said.getvalue()


def is_in_metrics(watch: RunWatch) -> bool:
    """Say whether a scrape would have the finding as a warning."""
    found = (one.labels for one in watch.take() if one.metric is FINDING and one.value)
    return any(rule == RULE and severity != INFO for _, rule, severity in found)


def measure() -> tuple[float, float, float, float]:
    """Return the seconds from the cause to the finding in each place, and from its end to the end
    of the finding.
    """
    training = Training()
    try:
        training.expect(b"training")
        while not (runs := list(list_runs())):
            time.sleep(0.1)
        posted, watch, log = Posted(runs[0]), RunWatch(runs[0]), Log(runs[0])
        try:
            posted.until(is_found=False)
            began_s = training.turn(b"slow")
            shown_s = posted.until(is_found=True) - began_s
            places_s = []
            for is_there in (functools.partial(is_in_metrics, watch), log.has_finding):
                while not is_there():
                    time.sleep(0.1)
                places_s.append(time.monotonic() - began_s)
            ended_s = training.turn(b"quick")
            metric_s, logged_s = places_s
            return shown_s, metric_s, logged_s, posted.until(is_found=False) - ended_s
        finally:
            posted.close()
    finally:
        training.process.communicate()


def row(name: str, values: list[float], bound_s: float) -> str:
    """Return a row of the table: mean with its 95 % interval, the largest, and the bound."""
    half_s = student_95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    mean_s = statistics.fmean(values)
    return f"| {name} | {mean_s:.1f} ± {half_s:.1f} s | {max(values):.1f} s | {bound_s:.0f} s |"


def main() -> None:
    """Measure a few times, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    if runs < 2:
        parser.error("an interval takes two runs at least")
    os.environ["OMP_NUM_THREADS"] = "1"
    found = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as home:
            os.environ["PROFD_HOME"] = home
            found.append(measure())
    rows = [
        row(name, list(values), bound_s)
        for (name, bound_s), values in zip(BOUNDS_S.items(), zip(*found, strict=True), strict=True)
    ]
    lines = [
        "| a finding is | mean, 95 % interval | largest | bound |",
        "|---|---:|---:|---:|",
        *rows,
    ]
    print("\n".join(lines))
    write_section(
        "Findings of live runs",
        f"`benchmarks/findings/live_findings.py`: {runs} runs of a training.",
        lines,
    )
