"""What profd says on a machine with a GPU, beside what is true there: ``python
benchmarks/run.py gpu_session A|B|C|STEP``.

A are facts of the driver and the truth of readings, B windows, C findings; each within nine minutes
on one GPU, without the network. Single steps may be named instead. Each step is a process of its
own with its own time limit, and what it says is appended to ``--out`` as a line of JSON as it
comes. The run files lie beside it. Nothing is asserted: a device may answer as it likes. What there
is no time for is left out, and named. At the end stands what differs from what the simulator of the
tests and the documents assume.

Where pynvml's lowest version is to be tried, it lies beside ``--out``: ``python -m pip install
--no-deps --target pynvml-12.560 nvidia-ml-py==12.560.30``. Without a GPU: ``--simulated`` puts the
simulator in the driver's place, ``--scale 0.1`` shortens all.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gpu import gpu_claims as claims
from gpu import gpu_readings as readings
from gpu.gpu_commands import Assumed, Pace, Values
from support.folders import BENCHMARKS

PART_S = 530
"""For so long it goes on: a machine may be lent for minutes."""
LAST_S = 2
"""So long before its limit a step ends by itself."""


class Step(NamedTuple):
    """A step: what it does gets its pace, and yields values and what was assumed."""

    part: str
    name: str
    limit_s: float
    do: Callable[[Pace], Iterator[Values | Assumed]]


STEPS = (
    Step("A", "facts", 60, readings.facts),
    Step("A", "recorder", 120, readings.recorder),
    Step("A", "idle", 30, readings.idle_reading),
    Step("A", "truth", 160, readings.truth),
    Step("A", "work", 40, readings.shapes_of_work),
    Step("A", "copies", 40, readings.copies),
    Step("A", "memory", 30, readings.memory),
    Step("A", "cost", 180, readings.cost),
    Step("A", "gaps", 110, readings.gap_runs),
    Step("B", "tables", 150, claims.tables),
    Step("B", "windows", 240, claims.windows),
    Step("B", "in-process", 75, claims.in_process),
    Step("B", "clients", 150, claims.clients),
    Step("B", "every", 60, claims.every),
    Step("C", "findings", 440, claims.findings),
    Step("C", "classic", 90, claims.classic),
)


def take(step: Step, scale: float, out: Path, left_s: float) -> list[Values]:
    """Take a step in a process of its own, append what it says as it comes, and return what was
    assumed.

    It gets its own time limit, or what is left of that of the part.
    """
    limit_s = max(min(step.limit_s, left_s), 1.0)
    print(f"{step.part} {step.name} …", flush=True)
    begun = time.monotonic()
    words = [
        sys.executable,
        str(BENCHMARKS / "run.py"),
        "gpu_session",
        step.name,
        "--here",
        "--scale",
        str(scale),
        "--limit",
        str(limit_s),
    ]
    environment = {**os.environ, "GPU_SESSION_FOLDER": str(out.absolute().parent)}
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=environment,
    )
    timer = threading.Timer(limit_s, lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.start()
    found, other = [], []
    assert process.stdout is not None
    with out.open("a") as file:
        for line in process.stdout:
            try:
                values = json.loads(line)
            except ValueError:
                other.append(line)
                continue
            found.append(values)
            file.write(json.dumps({"part": step.part, "step": step.name, **values}) + "\n")
            file.flush()
        status = process.wait()
        timer.cancel()
        took = time.monotonic() - begun
        ended = (
            "done"
            if status == 0
            else "ran into its limit"
            if took >= limit_s
            else f"failed ({status})"
        )
        last = {
            "part": step.part,
            "step": step.name,
            "ended": ended,
            "took_s": took,
            "output": "".join(other)[-3000:],
        }
        file.write(json.dumps(last) + "\n")
    left_out = [one["left_out"] for one in found if "left_out" in one]
    print(
        f"  {ended}, {took:.0f} s" + "".join(f"; no time for {one}" for one in left_out), flush=True
    )
    return [one for one in found if "assumed" in one]


def take_here(step: Step, pace: Pace) -> None:
    """Take a step in this process, and print what it says as lines of JSON."""
    for said_now in step.do(pace):
        assumed = isinstance(said_now, Assumed)
        values = (
            dict(zip(("assumed", "holds", "seen"), said_now, strict=True)) if assumed else said_now
        )
        print(json.dumps(values, default=str), flush=True)
    if pace.left_out:
        print(json.dumps({"left_out": pace.left_out}, default=str))


def simulate(folder: Path) -> None:
    """Have what is started from here find a simulated driver: one GPU that is busy for 0.1 s of
    each 0.2 s.
    """
    from support.gpusim import SimulatedDriver, Timeline, build

    driver = SimulatedDriver(build(folder), folder, time.time_ns())
    driver.add_gpu(
        memory_used_bytes=40 << 30, memory_total_bytes=80 << 30, minor=0, power_watts=600
    )
    for name, value in (
        ("power_limit_watts", 700),
        ("temperature_celsius", 60),
        ("throttle_reasons_mask", 4),
    ):
        driver.add(name, value, "gpu0")
    driver.run(Timeline.steps(2 * PART_S, 0.1, 0.1))
    driver.add("gpm_of_utilization", 1, "gpu0", 1)
    for metric in (2, 3, 5, 10, 20, 21, 60, 61):
        driver.add("gpm", 50, "gpu0", metric)
    os.environ.update(
        {name: value for name, value in driver.environment.items() if name != "FAKE_NVML_CALLS"}
    )


def main() -> None:
    """Take the steps, and say what differs from what was assumed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "steps", nargs="+", choices=sorted({name for step in STEPS for name in step[:2]})
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-session.jsonl"))
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of all lengths of time; below 1 to try it"
    )
    parser.add_argument(
        "--simulated", action="store_true", help="with the simulator in the driver's place"
    )
    parser.add_argument("--limit", type=float, default=PART_S, help="seconds for all of it")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    steps = [step for step in STEPS if {step.part, step.name} & {*options.steps}]
    if options.here:
        take_here(steps[0], Pace(options.scale, options.limit - LAST_S))
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.simulated:
            simulate(Path(folder))
        end_s = time.monotonic() + options.limit
        assumed = [
            one
            for step in steps
            for one in take(step, options.scale, options.out, end_s - time.monotonic())
        ]
    differs = [one for one in assumed if not one["holds"]]
    print(f"\n{len(assumed)} things were assumed, {len(differs)} differ here:")
    for one in differs:
        print(f"- {one['assumed']}: {one['seen']}")
