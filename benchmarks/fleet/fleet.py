"""How long `profd fleet` takes over 10^6, 10^7 and 10^8 rows of samples, and in how much memory.

``python benchmarks/run.py fleet [--run FILE] [--sizes 1e6 1e7 1e8]``, about 10 minutes and 5 GB of
disk; writes its section of ``docs/measurements.md``. Data sets are made by ``fleetgen`` from a run
of ResNet-18. Without ``--run`` that run is recorded first. Fresh processes answer for each data
set: they must name first what was planted. Ends with 1 if a bound is broken.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from common.measurements import write_section
from fleet.fleetgen import Plan, Truth, make_fleet
from fleet.fleettemplate import Template, take_template
from support.folders import TARGET

from profd.daemon.fleet.answers import Fleet
from profd.daemon.fleet.dataset import DataSet

MOST_S = 30.0
MOST_BYTES = 4_000_000_000
ROUNDS = 3
RECORDED_S = 190
TRAINING = TARGET / "cifar_resnet18.py"


class Asked(NamedTuple):
    """One call of the command: how long it took, its peak RSS, and what it printed."""

    took_s: float
    rss_bytes: int
    answer: bytes


class Measured(NamedTuple):
    """What was measured of a data set; ``is_right``: what was planted was named first."""

    rows: int
    disk_bytes: int
    made_s: float
    took_s: float
    rss_bytes: int
    is_right: bool


def record(folder: Path) -> Path:
    """Record the run that data sets are made from."""
    run = folder / "template.profd"
    words = ["run", "--headless", "--quiet", "-o", str(run), "--"]
    script = [
        sys.executable,
        str(TRAINING),
        "--workers",
        "1",
        "--device",
        "cpu",
        "--epochs",
        "1000",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "profd", *words, *script], stdout=subprocess.DEVNULL
    ) as recorder:
        try:
            recorder.wait(RECORDED_S)
        except subprocess.TimeoutExpired:
            recorder.terminate()  # ends the script, and with it the run
    return run


def ask(url: str, *words: str) -> Asked:
    """Call the command in a fresh process."""
    with tempfile.TemporaryFile() as out:
        begun_s = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "profd", "fleet", url, "--json", *words], stdout=out
        )
        _, status, usage = os.wait4(process.pid, 0)
        took_s = time.monotonic() - begun_s
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        out.seek(0)
        return Asked(took_s, usage.ru_maxrss * 1024, out.read())


def is_right(fleet: Fleet, truth: Truth) -> bool:
    """Say whether what was planted is named first."""
    return (
        fleet.samples == truth.rows
        and fleet.phases[0].phase == truth.cause
        and [one.node for one in fleet.slow_nodes] == [truth.slow_node]
    )


def measure(rows: int, template: Template, folder: Path) -> Measured:
    """Make a data set, and ask it."""
    url = str(folder)
    begun_s = time.monotonic()
    truth = make_fleet(DataSet(url), template, Plan(rows))
    made_s = time.monotonic() - begun_s
    asked = [ask(url) for _ in range(ROUNDS)]
    return Measured(
        truth.rows,
        sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        made_s,
        statistics.median(one.took_s for one in asked),
        max(one.rss_bytes for one in asked),
        is_right(msgspec.json.decode(asked[0].answer, type=Fleet), truth),
    )


def growth(measured: Sequence[Measured]) -> str:
    """Return by which power of the rows time grows from each size to the next."""
    powers = [
        math.log(after.took_s / before.took_s) / math.log(after.rows / before.rows)
        for before, after in itertools.pairwise(measured)
    ]
    return ", ".join(f"{power:.2f}" for power in powers)


def table(measured: Sequence[Measured]) -> list[str]:
    """Return the rows of the section."""
    lines = [
        "| rows | on disk | made in | DuckDB, median | peak RSS | planted named first |",
        "|---:|---:|---:|---:|---:|---|",
    ]
    for one in measured:
        lines.append(
            f"| {one.rows:,} | {one.disk_bytes / 1e6:,.0f} MB | {one.made_s:.0f} s | "
            f"{one.took_s:.1f} s | {one.rss_bytes / 1e6:,.0f} MB | "
            f"{_yes(one.is_right)} |"
        )
    if len(measured) > 1:
        lines += [
            "",
            f"Time grows with the rows to the power of {growth(measured)}, from each size "
            "to the next.",
        ]
    return lines


def _yes(holds: bool) -> str:
    return "yes" if holds else "**no**"


def main() -> int:
    """Measure all sizes and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a recorded run to make data sets from")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument(
        "--folder", type=Path, help="where data sets are made, 5 GB [default: the temporary folder]"
    )
    parser.add_argument("--quick", action="store_true", help="10^5 rows, written nowhere")
    options = parser.parse_args()
    measured = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        template = take_template(options.run or record(Path(folder)))
        for rows in [1e5] if options.quick else options.sizes:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                measured.append(measure(int(rows), template, Path(place)))
            print(measured[-1], flush=True)
    lines = table(measured)
    print("\n".join(lines))
    if not options.quick:
        write_section(
            "Many runs together",
            "`benchmarks/fleet/fleet.py`: `profd fleet --json` in a fresh process over data sets of "
            f"{len(template.stacks)} stacks and {template.rows_a_minute:.0f} rows a minute and "
            f"rank, drawn from a recorded run; {ROUNDS} times each, the files in the page cache. "
            f"A row is a thread in one stack over a minute. Bounds for 10⁸ rows: {MOST_S:.0f} s "
            f"and {MOST_BYTES / 1e9:.0f} GB.",
            lines,
        )
    broken = [one for one in measured if one.took_s > MOST_S or one.rss_bytes > MOST_BYTES]
    return 1 if broken or not all(one.is_right for one in measured) else 0
