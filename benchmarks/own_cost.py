"""What profd itself takes, beside bare py-spy on the same process at the same rate.

Run on a quiet machine: ``python benchmarks/own_cost.py [--seconds 30] [--runs 5]``; writes its section of
``docs/measurements.md``. Both record the same loop at the same time, so that they see the same load.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from measurements import write_section

from profd.daemon.collect.pyspy import find_py_spy
from profd.daemon.store.reader import RunReader

HERE = Path(__file__).parent


class Cost(NamedTuple):
    """Cores that each took, and the memory of profd."""

    profd_cores: float
    py_spy_cores: float
    profd_bytes: float


def measure(seconds: int) -> Cost:
    """Record one loop with both for ``seconds``."""
    loop = subprocess.Popen([sys.executable, str(HERE / "steploop.py"), "100000000", "1"], stdout=subprocess.DEVNULL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            run_file = Path(folder) / "run.profd"
            words = [
                "-m",
                "profd",
                "attach",
                str(loop.pid),
                "--headless",
                "--duration",
                str(seconds),
                "-o",
                str(run_file),
            ]
            profd = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
            py_spy_cores = cores_of_py_spy(loop.pid, seconds, Path(folder) / "bare.raw")
            profd.wait()
            return read_cost(run_file, py_spy_cores)
    finally:
        loop.kill()
        loop.wait()


def cores_of_py_spy(pid: int, seconds: int, output: Path) -> float:
    """Return the cores that one long py-spy recording takes, by its own resource usage."""
    words = ["--nonblocking", "--idle", "--threads", "-f", "raw", "-d", str(seconds), "-o", str(output), "-p", str(pid)]
    process = subprocess.Popen([find_py_spy(), "record", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    usage = os.wait4(process.pid, 0)[2]
    process.returncode = 0
    return (usage.ru_utime + usage.ru_stime) / seconds


def read_cost(run_file: Path, py_spy_cores: float) -> Cost:
    """Return what the run file says of profd's own cost."""
    with RunReader(run_file) as reader:
        points = {}
        for name in ("profd_cpu_cores", "profd_rss_bytes"):
            series = reader.find_series(name)
            assert series is not None
            # The first two readings hold the start.
            points[name] = [point.value for point in reader.points(series.id)][2:]
    return Cost(
        statistics.mean(points["profd_cpu_cores"]),
        py_spy_cores,
        max(points["profd_rss_bytes"]),
    )


def main() -> None:
    """Measure some runs and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    costs = [measure(arguments.seconds) for _ in range(arguments.runs)]
    ratio = statistics.median(cost.profd_cores / cost.py_spy_cores for cost in costs)
    median = Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))
    lines = [
        "| | profd, headless | bare `py-spy record` | ratio |",
        "|---|---|---|---|",
        f"| CPU, share of one core | {median.profd_cores:.1%} | {median.py_spy_cores:.1%} | {ratio:.2f} |",
        f"| memory | {median.profd_bytes / 1e6:.0f} MB | | |",
    ]
    print("\n".join(lines))
    write_section(
        "What profd itself takes",
        f"`benchmarks/own_cost.py`: {arguments.runs} runs of {arguments.seconds} s on one torch loop at 100 Hz, profd "
        "and one long `py-spy record --nonblocking --idle --threads` side by side; medians. CPU counts profd's session "
        "and every py-spy that it starts, without start-up.",
        lines,
    )


if __name__ == "__main__":
    main()
