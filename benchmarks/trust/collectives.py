"""Measures whether a stopped gloo job has its rank, process, operation and line named, and a
healthy job no alarm.

    python benchmarks/run.py collectives [--jobs N] [--quick]

Real jobs of 2 to 4 ranks, by their stacks alone: stopped ones take 12 minutes, healthy ones 8.
Each of both writes its section of ``docs/measurements.md``, unless quick; ends with 1 where
something was not so. Jobs with NCCL's counts are simulated by ``tests/unit/collectives``.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from common import load
from common.measurements import write_section
from support import jobsim
from support.sessions import begin_session

from profd.daemon.clock import SECOND_NS
from profd.daemon.session.session import RunningSession
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import HangReport

KINDS = ("mismatch", "checkpoint", "debugger", "loader", "killed", "skipped")
SIZES = (2, 3, 4)
HEALTHY = ("compile", "evaluation", "uneven", "slow-start", "checkpointing", "none")
WITHIN_S = 45.0
LONG_S = 50.0
"""How long a slow part of a healthy gloo job takes."""


class Stop(NamedTuple):
    """What was said of a planted stop; ``wrong`` says what of it is not so, or is empty."""

    kind: str
    size: int
    after_s: float | None
    wrong: str
    text: str

    @property
    def is_right(self) -> bool:
        """Whether it was reported in time, and nothing of it is wrong."""
        return self.after_s is not None and self.after_s <= WITHIN_S and not self.wrong


class Job(NamedTuple):
    """A gloo job that runs: the shell that started the ranks, and what they print."""

    process: subprocess.Popen[str]
    folder: Path


@contextmanager
def gloo_job(kind: str, size: int, planted: int, seconds: float) -> Iterator[Job]:
    """Run a job; its ranks are children of a shell that keeps their standard input open."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        os.mkfifo(f"{name}/pipe")
        os.mkfifo(f"{name}/stdin")
        words = " ".join(load.command("desync", kind, planted, seconds, name))
        ranks = [f"RANK={rank} {words} <&3 2>{name}/{rank}.err &" for rank in range(size)]
        script = f"exec 3<>{name}/stdin; {' '.join(ranks)} wait"
        own = {
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        }
        environment = {**os.environ, **own}
        process = subprocess.Popen(
            ["sh", "-c", script],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environment,
        )
        try:
            yield Job(process, Path(name))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def stop_gloo(case: tuple[str, int]) -> Stop:
    """Have a real job stop, and see what is said of it."""
    kind, size = case
    planted = size - 1
    with gloo_job(kind, size, planted, 0) as job:
        load.wait_ready(job.process)
        session = begin_session(job.process.pid, hang_after_s=30.0)
        assert job.process.stdout is not None
        stopped_ns = next(
            int(line.split()[1]) for line in job.process.stdout if line.startswith("stops ")
        )
        pids = {rank.rank: rank.pid for rank in read_ranks(session) if rank.rank is not None}
        found = wait_for_hang(session, 70)
        session.end()
        session.wait_closed(60)
        if found is None:
            return Stop(kind, size, None, "no hang was found", "")
        at_ns, text, report = found
    return Stop(
        kind,
        size,
        (at_ns - stopped_ns) / SECOND_NS,
        judge(kind, size, planted, report, text, pids),
        text,
    )


def read_ranks(session: RunningSession) -> list[jobsim.Named]:
    """Return the ranks that a run has."""
    with RunReader(session.run_file) as reader:
        return [
            jobsim.Named(row.rank, row.pid)
            for row in reader.processes.values()
            if row.role == "main"
        ]


def wait_for_hang(session: RunningSession, within_s: float) -> tuple[int, str, HangReport] | None:
    """Return when a hang was reported, its text and its report; None where there was none."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        with RunReader(session.run_file) as reader:
            if found := reader.hangs():
                return found[0].at_ns, found[0].text, found[0].report
        time.sleep(0.5)
    return None


OPERATION = {
    "mismatch": ("all_reduce", "broadcast", "all_gather"),
    "skipped": ("barrier", "all_reduce"),
}
PLACE = {
    "checkpoint": "save",
    "debugger": "desync.py",
    "loader": "desync.py",
    "killed": "",
    "mismatch": "",
    "skipped": "",
}


def judge(
    kind: str, size: int, planted: int, report: HangReport, text: str, pids: dict[int, int]
) -> str:
    """Return what is wrong with a report of a real job; empty where all is right.

    Where two ranks wait in different collectives nobody can say which of them is wrong: then both
    are named.
    """
    named = {one.rank for one in report.behind}
    may_be = {0, 1} if size == 2 and kind in ("mismatch", "skipped") else {planted}
    if not named or named != may_be:
        return f"named {sorted(named, key=str)}, not {sorted(may_be)}"
    mine = next(one for one in report.behind if one.rank == planted)
    if mine.pid != pids[planted]:
        return f"pid {mine.pid}, not {pids[planted]}"
    if kind == "killed":
        # Its parent took its status, and may have done so before profd could read it.
        is_said = "SIGKILL" in mine.state or "ended" in mine.state
        return "" if is_said and "desync.py" in text else f"no end or no line: {mine.state}"
    if mine.operation not in OPERATION.get(kind, ("all_reduce",)):
        return f"operation {mine.operation}"
    return "" if "desync.py:" in mine.place and PLACE[kind] in mine.place else f"place {mine.place}"


def go_on_gloo(case: tuple[int, str]) -> list[str]:
    """Run a real job with a slow part, and return the alarms."""
    number, kind = case
    size = 2 + number % 3
    with gloo_job(kind, size, number % size, LONG_S) as job:
        session = begin_session(job.process.pid, hang_after_s=30.0)
        code = job.process.wait(400)
        session.wait_closed(60)
        if code != 0 or any(
            path.stat().st_size
            for path in job.folder.glob("*.err")
            if b"Error" in path.read_bytes()
        ):
            sys.exit(
                f"{kind}: the job failed: "
                f"{[path.read_text()[-300:] for path in job.folder.glob('*.err')]}"
            )
        with RunReader(session.run_file) as reader:
            return [hang.text for hang in reader.hangs()]


def stopped(jobs: int, *, quick: bool) -> tuple[list[str], bool]:
    """Plant stops in real jobs."""
    cases = [(kind, size) for kind in KINDS for size in (SIZES[:1] if quick else SIZES)]
    with ThreadPoolExecutor(jobs) as pool:
        stops = list(map(show, pool.map(stop_gloo, cases)))
    return table(stops), all(one.is_right for one in stops)


def healthy(jobs: int, *, quick: bool) -> tuple[list[str], bool]:
    """Run real jobs that are healthy."""
    cases = list(enumerate(HEALTHY * (1 if quick else 2)))
    alarms = 0
    with ThreadPoolExecutor(jobs) as pool:
        for (_, kind), found in zip(cases, pool.map(go_on_gloo, cases), strict=True):
            print(f"{kind}: {'; '.join(found) or 'no alarm'}", flush=True)
            alarms += len(found)
    return [
        f"Healthy gloo jobs of 2 to 4 ranks, slow for {LONG_S:g} s: {len(cases)}, alarms: {alarms}."
    ], alarms == 0


def table(stops: Sequence[Stop]) -> list[str]:
    """Return the rows on planted stops."""
    lines = [
        "| planted | jobs | told right in time | after s, median | slowest |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind in dict.fromkeys(one.kind for one in stops):
        mine = [one for one in stops if one.kind == kind]
        after_s = [one.after_s for one in mine if one.after_s is not None] or [float("nan")]
        right = sum(one.is_right for one in mine)
        lines.append(
            f"| {kind} | {len(mine)} | {right} | {statistics.median(after_s):.1f} | "
            f"{max(after_s):.1f} |"
        )
    return lines


def show(one: Stop) -> Stop:
    """Print what was reported of a stop."""
    print(
        f"{one.kind} {one.size}: {one.after_s or float('nan'):.1f} s {one.wrong or 'right'}: "
        f"{one.text}",
        flush=True,
    )
    return one


PARTS = {"gloo": stopped, "healthy": healthy}


def main() -> int:
    """Run both parts, and write their sections; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=3, help="jobs at once [3]")
    parser.add_argument("--quick", action="store_true", help="few of each, written nowhere")
    options = parser.parse_args()
    is_right = True
    with tempfile.TemporaryDirectory() as home:
        os.environ["PROFD_HOME"] = home
        for name, part in PARTS.items():
            lines, held = part(options.jobs, quick=options.quick)
            print("\n".join(lines), flush=True)
            is_right = is_right and held
            if not options.quick:
                write_section(f"Collectives: {name}", "`benchmarks/trust/collectives.py`.", lines)
    return 0 if is_right else 1
