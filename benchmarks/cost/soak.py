"""Whether profd stays as it is for hours, under a training that starts new workers every ten
seconds.

Watched are memory, descriptors, processes and disk. ``benchmarks/cost/soak.py [--minutes 60]
[--epoch 10] [--quick]``: ``--epoch 1`` has ten times as many workers come and go. Says every minute
on stderr, as a JSON line, what it reads. Writes its section of ``docs/measurements.md``, unless
quick or with other epochs; ends with 1 where a bound breaks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from common import load
from common.measurements import write_section
from common.meters import cpu_with_children_s, descriptors, memory_of, own_cpu_s
from common.recorders import Profd
from common.trend import Bound, Readings, Trend, take_trend
from cost.scaling import database_bytes

from profd.daemon import processes
from profd.daemon.store.reader import RunReader

READ_EVERY_S = 5.0
EPOCH_S = 10.0
TELL_EVERY = 12
SETTLED_S = 600.0
MINUTE_S = 60.0
CLOSING_S = 60.0
MEGABYTE = 1e6
METHOD = (
    "`benchmarks/cost/soak.py`: a torch loop with two DataLoader workers, new ones every 10 s, for "
    "{minutes:.0f} minutes under `profd run --headless`; read every 5 s. Growth and slope are "
    "those after the first {settled:.0f} minutes: the slope is that of a least-squares line, the "
    "growth the mean of the last quarter less that of the first; the largest reading is of the "
    "whole time. USS is memory that a process shares with no other, RSS counts a page in each "
    "process that has it, PSS shares it out."
)


class Quantity(NamedTuple):
    """What is watched, in which unit, and what it may not exceed."""

    name: str
    unit: str
    bound: Bound


# Readings go up and down with each recording: a slope below these bounds looks like none in fifty
# minutes.
QUANTITIES = (
    Quantity("PSS of all of profd", "MB", Bound(highest=75.0, per_hour=2.0)),
    Quantity("USS of the session", "MB", Bound(per_hour=2.0)),
    Quantity("RSS of the session", "MB", Bound(per_hour=2.0)),
    Quantity("USS of the launcher", "MB", Bound(per_hour=0.5)),
    Quantity("RSS of the launcher", "MB", Bound(per_hour=0.5)),
    Quantity("descriptors of the session", "", Bound(per_hour=1.0)),
    Quantity("descriptors of the launcher", "", Bound(per_hour=0.5)),
    Quantity("children of the session", "", Bound(per_hour=0.5)),
    Quantity("run file", "MB", Bound(per_hour=20.0)),
    # The default budget is 10, never exceeded by more than a fifth over any minute.
    Quantity("CPU over a minute, percent of a core", "", Bound(highest=12.0)),
)


class Spending:
    """The CPU seconds spent so far, at each reading of the last minute."""

    def __init__(self) -> None:
        self._readings = deque([(0.0, 0.0)])

    def over_a_minute(self, at_s: float, cpu_s: float) -> float:
        """Return what was spent over the last minute, a fraction of a core: nothing was before the
        start at 0 s.
        """
        self._readings.append((at_s, cpu_s))
        while self._readings[1][0] <= at_s - MINUTE_S:
            self._readings.popleft()
        from_s, before_s = self._readings[0]
        return (cpu_s - before_s) / max(at_s - from_s, MINUTE_S)


def read_all(profd: Profd, spending: Spending, elapsed_s: float) -> Mapping[str, float]:
    """Read every quantity once; ``elapsed_s`` is the time since the start."""
    launcher, session = profd.process.pid, profd.session_pid
    own, session_own = memory_of([launcher]), memory_of([session])
    values = (
        profd.memory().pss_bytes / MEGABYTE,
        session_own.uss_bytes / MEGABYTE,
        session_own.rss_bytes / MEGABYTE,
        own.uss_bytes / MEGABYTE,
        own.rss_bytes / MEGABYTE,
        descriptors(session),
        descriptors(launcher),
        len(processes.children(session)),
        database_bytes(profd.run_file) / MEGABYTE,
        100 * spending.over_a_minute(elapsed_s, own_cpu_s(launcher) + cpu_with_children_s(session)),
    )
    return {quantity.name: float(value) for quantity, value in zip(QUANTITIES, values, strict=True)}


def soak(
    minutes: float, run_file: Path, epoch_s: float = EPOCH_S
) -> tuple[dict[str, Readings], list[str]]:
    """Train under profd and read until the time is over.

    Returns the readings, and what went wrong.
    """
    seconds = minutes * 60
    started_s = time.monotonic()
    profd = Profd.launch(load.command("epochs", seconds + READ_EVERY_S, 2, epoch_s), run_file)
    readings: dict[str, list[tuple[float, float]]] = {quantity.name: [] for quantity in QUANTITIES}
    spending = Spending()
    while (elapsed_s := time.monotonic() - started_s) < seconds and profd.process.poll() is None:
        time.sleep(READ_EVERY_S - elapsed_s % READ_EVERY_S)
        at_s = time.monotonic() - started_s
        values = read_all(profd, spending, at_s)
        for name, value in values.items():
            readings[name].append((at_s, value))
        if len(readings[QUANTITIES[0].name]) % TELL_EVERY == 0:
            print(json.dumps({"at_s": round(at_s), **values}), file=sys.stderr, flush=True)
    profd.process.wait(CLOSING_S)
    return dict(readings), faults(profd)


def faults(profd: Profd) -> list[str]:
    """Return in words what went wrong in a run that has ended."""
    found = []
    if profd.process.returncode:
        found.append(f"profd run ended with {profd.process.returncode}")
    with RunReader(profd.run_file) as reader:
        if reader.info.state != "ended":
            found.append(f"the run is {reader.info.state}")
        found += [
            f"{event.kind}: {event.text}"
            for event in reader.events()
            if event.kind in ("error", "loss")
        ]
    return found


def judge(readings: Mapping[str, Readings], settled_s: float) -> tuple[list[str], list[str]]:
    """Return the rows of the table, and the bounds that broke."""
    rows, broken = [], []
    for quantity in QUANTITIES:
        trend = take_trend(readings[quantity.name], settled_s)
        breaches = quantity.bound.breaches(trend)
        broken += [f"{quantity.name}: {breach}" for breach in breaches]
        rows.append(_row(quantity, trend, is_broken=bool(breaches)))
    return rows, broken


def _row(quantity: Quantity, trend: Trend, *, is_broken: bool) -> str:
    values = [
        f"{value:,.2f} {quantity.unit}".strip()
        for value in (trend.highest, trend.growth, trend.per_hour)
    ]
    return (
        f"| {quantity.name} | {' | '.join(values)} | "
        f"{_words(quantity.bound, is_broken=is_broken)} |"
    )


def _words(bound: Bound, *, is_broken: bool) -> str:
    """Return a bound in words, and whether it held."""
    words = [] if bound.highest is None else [f"at most {bound.highest:g}"]
    words += [] if bound.per_hour is None else [f"at most {bound.per_hour:g} more an hour"]
    return f"{', '.join(words)}: {'broken' if is_broken else 'held'}" if words else "none"


def main() -> None:
    """Soak, write the section, and fail where a bound broke."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--epoch", type=float, default=EPOCH_S, help="seconds from new workers to new workers [10]"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="try it in less than a minute; judges and writes nothing",
    )
    options = parser.parse_args()
    minutes = 0.5 if options.quick else options.minutes
    # A short one may not have settled by then, but there must be something to look at.
    settled_s = min(SETTLED_S, minutes * 60 / 2)
    with tempfile.TemporaryDirectory() as folder:
        readings, broken = soak(minutes, Path(folder) / "run.profd", options.epoch)
    rows, breaches = judge(readings, settled_s)
    lines = ["| | largest | growth | slope an hour | bound |", "|---|---:|---:|---:|---|", *rows]
    print("\n".join(lines))
    if options.quick:
        print("Too short to judge: in the first minutes memory and file grow.")
        sys.exit("\n".join(broken) or 0)
    broken += breaches
    lines += ["", "All bounds held." if not broken else f"Broken: {'; '.join(broken)}."]
    print(lines[-1])
    if options.epoch == EPOCH_S:
        write_section(
            "Hours of recording", METHOD.format(minutes=minutes, settled=settled_s / 60), lines
        )
    sys.exit(bool(broken))
