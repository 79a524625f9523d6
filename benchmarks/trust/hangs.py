"""Whether hangs are reported in time and by their cause, and whether slow parts of a training are
taken for hangs.

    python benchmarks/run.py hangs [--rounds N] [--runs N] [--jobs N] [--quick]

Planted: a training stops after 20 s in a queue, a lock, a collective, at a dead worker or in a
read, and has to be reported within 30 s of that, by the right cause. Healthy: a training with a
scan, a compilation, an evaluation, a checkpoint and waits that take 40 s each, and no alarm is
right. Takes about 15 minutes, writes its section of ``docs/measurements.md``, and ends with 1 where
one of that was not so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from common import load
from common.measurements import write_section
from support.sessions import begin_session

from profd.daemon.clock import SECOND_NS
from profd.daemon.session.session import RunningSession
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import HangFound

CAUSES = {
    "queue": "queue",
    "lock": "lock",
    "collective": "collective",
    "dead-worker": "dead worker",
    "read": "blocked read",
}
"""What each planted stop is to be called."""
WITHIN_S = 30.0
HANG_AFTER_S = 30.0
"""As the command line has it."""
TRAIN_S = 20.0
PAUSE_S = 40.0
_GIVEN_UP_S = 60.0
_LONGEST_S = 1200.0


class Stop(NamedTuple):
    """What was said of a stop: after how many seconds (None: never), and by which cause."""

    kind: str
    after_s: float | None
    cause: str

    @property
    def is_right(self) -> bool:
        """Whether it was reported in time, by its cause."""
        return (
            self.after_s is not None
            and self.after_s <= WITHIN_S
            and self.cause == CAUSES[self.kind]
        )


def hangs(session: RunningSession) -> list[HangFound]:
    """Return the hangs of a run up to now."""
    with RunReader(session.run_file) as reader:
        return reader.hangs()


def stop_once(kind: str) -> Stop:
    """Have a training stop under profd, and see what is said of it."""
    with tempfile.TemporaryDirectory() as folder:
        words = load.command("stopping", kind, TRAIN_S, folder)
        if kind == "collective":
            words = ["sh", "-c", f"RANK=0 {' '.join(words)} & RANK=1 {' '.join(words)} & wait"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            load.wait_ready(process)
            session = begin_session(process.pid, hang_after_s=HANG_AFTER_S)
            assert process.stdout is not None
            stopped_ns = next(
                int(line.split()[1]) for line in process.stdout if line.startswith("stops ")
            )
            found = wait_for_hang(session)
            session.end()
            session.wait_closed(60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if found is None:
        return Stop(kind, None, "nothing")
    return Stop(kind, (found.at_ns - stopped_ns) / SECOND_NS, found.report.cause)


def wait_for_hang(session: RunningSession) -> HangFound | None:
    """Wait until a hang is reported, and return it; None where that takes too long."""
    deadline_s = time.monotonic() + _GIVEN_UP_S
    while time.monotonic() < deadline_s:
        if found := hangs(session):
            return found[0]
        time.sleep(0.2)
    return None


def go_slowly(seed: int) -> list[str]:
    """Run a training with slow parts under profd, and return the alarms."""
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen(
            load.command("pauses", PAUSE_S, seed, folder), stdout=subprocess.PIPE, text=True
        ) as process:
            load.wait_ready(process)
            session = begin_session(process.pid, hang_after_s=HANG_AFTER_S)
            if process.wait(_LONGEST_S) != 0:
                sys.exit(f"the training ended with {process.returncode}")
        session.wait_closed(60)
        return [hang.text for hang in hangs(session)]


def main() -> int:
    """Plant all stops, run all healthy trainings, and write the section; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3, help="stops of each kind [3]")
    parser.add_argument("--runs", type=int, default=10, help="healthy trainings [10]")
    parser.add_argument("--jobs", type=int, default=5, help="trainings at once [5]")
    parser.add_argument("--quick", action="store_true", help="one of each, written nowhere")
    options = parser.parse_args()
    rounds, runs = (1, 1) if options.quick else (options.rounds, options.runs)
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(options.jobs) as pool:
        os.environ["PROFD_HOME"] = home
        stops = []
        for one in pool.map(stop_once, list(CAUSES) * rounds):
            print(f"{one.kind}: {one.cause} after {one.after_s or float('nan'):.1f} s", flush=True)
            stops.append(one)
        alarms = []
        for seed, found in enumerate(pool.map(go_slowly, range(runs))):
            print(f"healthy {seed + 1}: {'; '.join(found) or 'no alarm'}", flush=True)
            alarms.append(len(found))
    lines = [
        "| planted | stops | told in time by its cause | after s, median | slowest |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind, cause in CAUSES.items():
        mine = [one for one in stops if one.kind == kind]
        after_s = [one.after_s for one in mine if one.after_s is not None] or [float("nan")]
        right = sum(one.is_right for one in mine)
        lines.append(
            f"| {cause} | {len(mine)} | {right} | {statistics.median(after_s):.1f} | "
            f"{max(after_s):.1f} |"
        )
    lines += ["", f"Healthy trainings: {runs}, alarms: {sum(alarms)}."]
    print("\n".join(lines))
    if not options.quick:
        write_section(
            "Hangs",
            f"`benchmarks/trust/hangs.py` runs trainings that stop after {TRAIN_S:g} s: profd must "
            f"report each hang within {WITHIN_S:g} s. Others pause for {PAUSE_S:g} s, give or take "
            "a fifth, for a scan, a compilation, an evaluation, a checkpoint, a child's work or a "
            f"download: profd must not report these. {options.jobs} run at once; `--hang-after` is "
            "the default.",
            lines,
        )
    return 0 if all(one.is_right for one in stops) and not any(alarms) else 1
