"""What profd takes as a run grows: with workers, with threads, with time, and how much it writes.

Run on a quiet machine: ``python benchmarks/run.py scaling [--seconds 55] [--minutes 4] [--quick]``;
15 minutes. Writes its section of ``docs/measurements.md``, unless quick.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common import load, steps
from common.measurements import write_section
from common.meters import Mark, cores_between
from common.recorders import Profd, mark

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.timerange import TimeRange

START_S = 10.0
SETTLED_S = 25.0
"""By then each of 16 workers has been sampled for the first time, one after the other."""
HELD_S, THREADS_HELD_S = 60, 160
"""How long is measured where the budget has to lower the rate first: threads make the start dear.
"""
NO_BUDGET, BUDGET = 1000.0, 10.0
CROWDS = ((0, 1), (2, 1), (8, 1), (16, 1), (0, 32), (0, 160))
"""(workers, threads of the main process)."""
METHOD = (
    "`benchmarks/cost/scaling.py`: `profd attach --headless` on `benchmarks/common/loads/crowd.py` for "
    "{seconds} s each, in percent of one core. The threads are those of the main process; a pool "
    "of workers has three more. It is recorded with a budget out of reach, so that the main "
    "process is sampled at its full rate: in the first {start:.0f} s, and settled, after "
    "{settled:.0f} s, when each of 16 workers has been sampled once. And, where that comes near "
    "the default budget, for {held} s under it, with threads for {threads} s, the cost then being "
    "that of the last half; the dearest is the 60 s of all that cost most, the start among them. "
    "The rate is the mean of the main process's recordings in that time. With time: `profd "
    "attach` on a torch loop of one process; bytes are the pages of the database, its log "
    "included."
)


class Cost(NamedTuple):
    """What a recording took: cores in the first 10 s and once settled, the main process's rate
    then, largest RSS.

    ``dearest_cores`` is that of the minute that cost most, 0 where it took less than a minute.
    """

    start_cores: float
    steady_cores: float
    rate_hz: float
    rss_bytes: int
    dearest_cores: float


class Minute(NamedTuple):
    """A minute of a long run: cores, and bytes and memory at its end."""

    cores: float
    file_bytes: int
    rss_bytes: int


def measure_crowd(
    workers: int, threads: int, seconds: int, budget: float, settled_s: float
) -> Cost:
    """Record a crowd for ``seconds``."""
    with (
        load.running("crowd", workers, threads) as program,
        tempfile.TemporaryDirectory() as folder,
    ):
        started_s = time.monotonic()
        profd = Profd.attach(program.pid, Path(folder) / "run.profd", "--budget", str(budget))
        marks, rss_bytes = [Mark(0.0, 0.0)], 0
        for second in range(2, seconds + 1):
            time.sleep(max(started_s + second - time.monotonic(), 0))
            marks.append(mark(profd, started_s))
            rss_bytes = max(rss_bytes, profd.memory().rss_bytes)
        profd.end()
        return Cost(
            cores_between(marks, 0.0, START_S + 0.5),
            cores_between(marks, settled_s, seconds + 1),
            mean_rate_hz(profd.run_file, settled_s),
            rss_bytes,
            dearest_minute(marks),
        )


def dearest_minute(marks: Sequence[Mark]) -> float:
    """Return the cores of the minute that cost most; 0 where there is no whole one."""
    starts = [mark.at_s for mark in marks if mark.at_s + 60.5 <= marks[-1].at_s]
    return max((cores_between(marks, at_s, at_s + 60.5) for at_s in starts), default=0.0)


def mean_rate_hz(run_file: Path, settled_s: float) -> float:
    """Return the mean rate of the main process's recordings that began once settled."""
    with RunReader(run_file) as reader:
        mains = {process.id for process in reader.processes.values() if process.role == "main"}
        settled = TimeRange(reader.info.started_ns + int((settled_s - 5) * SECOND_NS))
        recordings = reader.recordings(settled)
        return statistics.mean(row.rate_hz for row in recordings if row.process in mains)


def measure_minutes(minutes: int, minute_s: float) -> list[Minute]:
    """Record a torch loop and return what each of its minutes took."""
    with steps.bare(1) as loop, tempfile.TemporaryDirectory() as folder:
        loop.begin(steps.ENDLESS)
        started_s = time.monotonic()
        profd = Profd.attach(loop.pid, Path(folder) / "run.profd")
        found, before = [], Mark(0.0, 0.0)
        for number in range(1, minutes + 1):
            time.sleep(max(started_s + number * minute_s - time.monotonic(), 0))
            now = mark(profd, started_s)
            cores = (now.cpu_s - before.cpu_s) / (now.at_s - before.at_s)
            found.append(Minute(cores, database_bytes(profd.run_file), profd.memory().rss_bytes))
            before = now
        profd.end()
        return found


def database_bytes(run_file: Path) -> int:
    """Return the size of a live run: its pages, those that only the log holds included."""
    address = f"{run_file.as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        pages: int = connection.execute("PRAGMA page_count").fetchone()[0]
        page_bytes: int = connection.execute("PRAGMA page_size").fetchone()[0]
        return pages * page_bytes


def bytes_per_hour(minutes: Sequence[Minute], minute_s: float) -> float:
    """Return the growth of the file between the end of the first minute and the end."""
    return (minutes[-1].file_bytes - minutes[0].file_bytes) * 3600 / ((len(minutes) - 1) * minute_s)


def crowd_lines(seconds: int, held_s: int, crowds: Sequence[tuple[int, int]]) -> list[str]:
    """Measure crowds and return their table, and what follows from it."""
    lines = [
        "| workers, threads | first 10 s | settled | rate | under the default budget | rate then "
        "| dearest minute | RSS |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    steady: dict[tuple[int, int], float] = {}
    for workers, threads in crowds:
        cost = measure_crowd(workers, threads, seconds, NO_BUDGET, min(SETTLED_S, seconds / 2))
        steady[workers, threads] = 100 * cost.steady_cores
        held = "as before", "as before", ""
        if 100 * cost.steady_cores > 0.8 * BUDGET:
            length_s = held_s if threads == 1 else max(held_s, THREADS_HELD_S)
            bounded = measure_crowd(workers, threads, length_s, BUDGET, length_s / 2)
            dearest = f"{bounded.dearest_cores:.1%}" if bounded.dearest_cores else ""
            held = f"{bounded.steady_cores:.1%}", f"{bounded.rate_hz:.0f} Hz", dearest
        free = f"{cost.start_cores:.1%}", f"{cost.steady_cores:.1%}", f"{cost.rate_hz:.0f} Hz"
        cells = f"{workers}, {threads}", *free, *held, f"{cost.rss_bytes / 1e6:.0f} MB"
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines + _verdicts(steady)


def _verdicts(steady: dict[tuple[int, int], float]) -> list[str]:
    """Return what the costs, in percent of a core, say of the bounds for workers."""
    if not {(8, 1), (16, 1)} <= steady.keys():
        return []
    main, more = steady[8, 1], steady[16, 1] - steady[8, 1]
    return [
        "",
        f"At the full rate a main process with 8 workers takes {main:.1f} % of a core (to be at "
        f"most 8), and 16 workers take {more:+.1f} points more than 8 (to be less than 2).",
    ]


def minute_lines(minutes: int, minute_s: float) -> list[str]:
    """Measure a long run and return its table, and how much it writes."""
    found = measure_minutes(minutes, minute_s)
    lines = ["| | CPU | run file | RSS |", "|---|---:|---:|---:|"]
    lines += [
        f"| minute {number} | {minute.cores:.1%} | {minute.file_bytes / 1e6:.2f} MB | "
        f"{minute.rss_bytes / 1e6:.0f} MB |"
        for number, minute in enumerate(found, start=1)
    ]
    per_hour = bytes_per_hour(found, minute_s) / 1e6
    return [
        *lines,
        "",
        f"From the end of the first minute on the run file grows by {per_hour:.1f} MB an hour.",
    ]


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=55, help="of each crowd")
    parser.add_argument("--minutes", type=int, default=4, help="of the long run")
    parser.add_argument(
        "--quick", action="store_true", help="try it in less than a minute; writes nothing down"
    )
    options = parser.parse_args()
    if options.quick:
        lines = [*crowd_lines(14, 14, CROWDS[1:2]), "", *minute_lines(3, 4.0)]
        print("\n".join(lines))
        return
    lines = [
        *crowd_lines(options.seconds, HELD_S, CROWDS),
        "",
        *minute_lines(options.minutes, 60.0),
    ]
    print("\n".join(lines))
    write_section(
        "Cost as a run grows",
        METHOD.format(
            seconds=options.seconds,
            held=HELD_S,
            threads=THREADS_HELD_S,
            start=START_S,
            settled=SETTLED_S,
        ),
        lines,
    )
