"""How soon profd samples a process that it is attached to, and how soon its dashboard is to be
seen; by part.

Run on a quiet machine: ``python benchmarks/run.py startup [--times 20] [--quick]``; about 3
minutes. Writes its section of ``docs/measurements.md``, unless quick. Times are from the start of
the command on.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from common import steps
from common.measurements import write_section
from common.recorders import compile_modules
from cost.dashboard import opened

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader

LIMITS_S = {"first sample": 0.6, "first picture": 1.2}
METHOD = (
    "`benchmarks/cost/startup.py`: `profd attach` on a torch loop, {times} times, its dashboard drawn "
    "by a terminal emulator, from the start of the command on; profd's modules are compiled "
    "beforehand, as an installer does. The session's process begins when the command has read its "
    "options; the run begins once the session has imported what it needs and made the run file; "
    "the first sample is where the first recording begins, by the run's own clock; the first "
    "picture is drawn when the terminal shows the tables, the first function when a function of "
    "the loop stands in them. CPU is that of the command and its session by the time of the first "
    "function, py-spy included."
)


def measure(pid: int) -> dict[str, float]:
    """Attach once, and return when each part was done."""
    with tempfile.TemporaryDirectory(prefix="profd-") as folder:
        run_file = Path(folder) / "run.profd"
        began_ns = time.time_ns()
        with opened("attach", str(pid), "-o", str(run_file)) as terminal:
            picture_s = terminal.until(partial(terminal.line, "1 Hot")) - terminal.began_s
            function_s = terminal.until(partial(terminal.line, "train")) - terminal.began_s
            cpu_s = _cpu_s(terminal.pid)
            with RunReader(run_file) as reader:
                info, first_ns = reader.info, min(row.start_ns for row in reader.recordings())
                session = processes.read_stat(info.recorder.pid)
                assert session is not None
                begun_s = (began_ns / SECOND_NS) - time.time() + session.age_s
    return {
        "session's process": -begun_s,
        "run begins": (info.started_ns - began_ns) / SECOND_NS,
        "first sample": (first_ns - began_ns) / SECOND_NS,
        "first picture": picture_s,
        "first function": function_s,
        "CPU": cpu_s,
    }


def _cpu_s(pid: int) -> float:
    living = [pid, *processes.children(pid)]
    living += [grandchild for child in living[1:] for grandchild in processes.children(child)]
    stats = filter(None, map(processes.read_stat, living))
    return sum(stat.cpu_ticks for stat in stats) / processes.CLOCK_TICKS


def table(found: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the table of some attaches."""
    lines = ["| | median | least | most | to be at most |", "|---|---:|---:|---:|---:|"]
    for part in found[0]:
        values = [one[part] for one in found]
        limit = f"{LIMITS_S[part]:.1f} s" if part in LIMITS_S else ""
        middle, least, most = (
            f"{value:.2f} s" for value in (statistics.median(values), min(values), max(values))
        )
        lines.append(f"| {part} | {middle} | {least} | {most} | {limit} |")
    return lines


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="try it twice; writes nothing down")
    options = parser.parse_args()
    times = 2 if options.quick else options.times
    compile_modules()
    found = []
    with tempfile.TemporaryDirectory(prefix="profd-") as home, steps.bare(1) as loop:
        os.environ["PROFD_HOME"] = home
        loop.begin(steps.ENDLESS)
        for _ in range(times):
            found.append(measure(loop.pid))
            print({part: round(value, 3) for part, value in found[-1].items()}, flush=True)
    lines = table(found)
    print("\n".join(lines))
    if not options.quick:
        write_section("From the command to the first picture", METHOD.format(times=times), lines)
