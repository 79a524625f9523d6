"""What profd costs a training's steps: profd is switched on and off within one process, in short
random blocks.

Run on a quiet machine: ``python benchmarks/run.py throughput [--minutes 6] [--quick]``; some 8
minutes for each of six rows. Writes its section of ``docs/measurements.md``, unless quick.

Off: all of profd is stopped (SIGSTOP), py-spy too, so nothing reads the loop. On: all goes on, and
makes up for what it missed, as py-spy and profd's threads go by the clock. So profd does all of its
work in half of the time, and half of the difference between on and off is its cost. Its CPU time
beside that before the switching shows what it left out.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import load
from common.measurements import write_section
from common.recorders import BarePySpy, Profd, mark
from cost.scaling import mean_rate_hz
from cost.switched import Block, Estimate, Taken, estimate, plan, take_blocks

from profd.daemon import processes

SHORTEST_S, LONGEST_S = 0.02, 0.05
"""A machine's speed changes at all lengths: the shorter the blocks, the more of it both sides of a
four share.
"""
START_S, SETTLED_S = 20.0, 40.0
"""How long profd starts, which counts elsewhere, and how long its CPU time is taken before the
switching.
"""
PILOT_SHARE = 0.1
HIGHEST_PERCENT, WIDEST_PERCENT = 0.4, 0.25
BYSTANDER, BARE = ", of another", ", bare py-spy"
LOOPS = (
    "small steps",
    "data-bound",
    "many threads",
    "restless",
    "cores full",
    f"cores full{BYSTANDER}",
)
SLEEPER = (
    "import time\ndef sleep(depth):\n    sleep(depth - 1) if depth else time.sleep(1e9)\nsleep(25)"
)
METHOD = (
    "`benchmarks/cost/throughput.py`: one process a loop, {minutes:g} minutes of blocks of {shortest} "
    "to {longest} s in pseudo-random order, in which `profd attach --headless` at its defaults "
    "runs or is stopped, py-spy too. Both go by the clock and make up for what they missed: all "
    "of profd's work falls into the half of the time that is on. So half of the difference "
    "between on and off is its cost. Work: profd's CPU time while it is switched, beside that of "
    "{settled:g} s before: near 100 % where nothing was left out. Rate: of py-spy's samples. The "
    "loop notes the end of each step, and the CPU time of the process; steps during a switch "
    "count for neither side. The sham is a second switch, of a process that does nothing. Slower "
    "by: the change of the mean step time, the mean over fours of blocks, which have each "
    "position of both switches once, with 95 % intervals that allow for autocorrelation "
    "(Newey-West). Detectable: the cost that would be found in four of five measurements; "
    "foreseen is what a pilot without profd said of it beforehand. To hold: the upper end at most "
    "{highest} %, half the width at most {widest} %, and the sham's interval with 0 in it. The "
    "two workers of the data-bound loop wait for storage; those of *cores full* compute, and "
    "leave no core to profd: what it takes, they lack. *Of another*: profd records another "
    "process, one that sleeps, and never reads the loop. *Bare py-spy*: what one `py-spy record "
    "--nonblocking --idle --threads` at 100 Hz costs in place of profd, by the same method."
)


class Switch:
    """All processes of what records, to be stopped and to go on."""

    def __init__(self, first: int, *others: int) -> None:
        """Take the process that starts the others: it is stopped before them, and they are looked
        up anew.
        """
        self._first, self._others = first, others
        self._stopped: list[int] = []

    def turn(self, is_on: bool) -> None:
        """Have it run or not; returns once that is so."""
        if is_on:
            for pid in self._stopped:
                _send(pid, signal.SIGCONT)
            self._stopped = []
        elif not self._stopped:
            _send(self._first, signal.SIGSTOP)
            self._stopped = [self._first, *self._others, *processes.children(self._first)]
            for pid in self._stopped[1:]:
                _send(pid, signal.SIGSTOP)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@contextlib.contextmanager
def sham() -> Iterator[Callable[[bool], None]]:
    """Give a switch of a process that does nothing."""
    process = subprocess.Popen(["sleep", "infinity"])
    try:
        yield lambda is_on: _send(process.pid, signal.SIGCONT if is_on else signal.SIGSTOP)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process of Python that sleeps, 25 calls deep."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPER])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def follow(
    blocks: Sequence[Block], real: Callable[[bool], None]
) -> list[tuple[float, float, bool, bool]]:
    """Go through the blocks.

    Returns from when to when each was, once switched, by the monotonic clock.
    """
    spans = []
    with sham() as turn_sham:
        for length_s, is_on, is_sham in blocks:
            turn_sham(is_sham)
            real(is_on)
            begun_s = time.monotonic()
            time.sleep(length_s)
            spans.append((begun_s, time.monotonic(), is_on, is_sham))
        real(True)
    return spans


class Work(NamedTuple):
    """What profd did while it was switched: its CPU time beside that before, in one, and its mean
    rate in Hz.
    """

    share: float
    rate_hz: float


def measure(kind: str, minutes: float, seed: int) -> tuple[list[Taken], list[Taken], Work]:
    """Measure one loop: the blocks of a pilot without profd, those with it, and its work in them."""
    lengths = 60 * minutes, SHORTEST_S, LONGEST_S
    with tempfile.TemporaryDirectory() as folder:
        noted, run_file = Path(folder) / "steps", Path(folder) / "run.profd"
        with load.running("stepping", kind.partition(", ")[0], noted) as loop, sleeper() as other:
            pilot = follow(
                plan(max(PILOT_SHARE * lengths[0], 20.0), *lengths[1:], seed), lambda _: None
            )
            recorder: Profd | BarePySpy
            if kind.endswith(BARE):
                recorder = BarePySpy(loop.pid, round(3 * lengths[0]) + 600, Path(folder) / "stacks")
                switch = Switch(recorder.process.pid)
            else:
                recorder = Profd.attach(
                    other.pid if kind.endswith(BYSTANDER) else loop.pid, run_file
                )
                switch = Switch(recorder.session_pid, recorder.process.pid)
            time.sleep(START_S)
            marks = [mark(recorder, 0.0)]
            time.sleep(SETTLED_S)
            marks.append(mark(recorder, 0.0))
            spans = follow(plan(*lengths, seed + 1), switch.turn)
            marks.append(mark(recorder, 0.0))
            recorder.end()
            loop.communicate()  # the end of its stdin ends it
        ends_s, cpu_s = np.frombuffer(noted.read_bytes(), np.int64).reshape(-1, 2).T / 1e9
        before, switched = (
            (two.cpu_s - one.cpu_s) / (two.at_s - one.at_s)
            for one, two in itertools.pairwise(marks)
        )
        rate_hz = 100.0 if kind.endswith(BARE) else mean_rate_hz(run_file, START_S + SETTLED_S + 5)
        work = Work(switched / before, rate_hz)
        return take_blocks(pilot, ends_s, cpu_s), take_blocks(spans, ends_s, cpu_s), work


def rows(kind: str, pilot: Sequence[Taken], blocks: Sequence[Taken], work: Work) -> list[str]:
    """Return the rows of a loop."""
    found = []
    for field, clock in (("wall_s", "wall"), ("cpu_s", "CPU")):
        (real, null), (_, foreseen) = estimate(blocks, field), estimate(pilot, field)
        expected = foreseen.detectable * (len(pilot) / len(blocks)) ** 0.5
        step_ms = 1000 * statistics.mean(getattr(block, field) or 0.0 for block in blocks)
        cells = (
            f"{real} | {null} | {real.detectable:.2f} % | {expected:.2f} % | {_verdict(real, null)}"
        )
        done = f"{work.share:.0%} | {work.rate_hz:.0f} Hz"
        found.append(f"| {kind}, {clock} | {len(blocks)} | {step_ms:.2f} ms | {cells} | {done} |")
    return found


def _verdict(real: Estimate, null: Estimate) -> str:
    checks = {
        f"the upper end is above {HIGHEST_PERCENT} %": real.high > HIGHEST_PERCENT,
        f"the interval is wider than ± {WIDEST_PERCENT} %": real.half > WIDEST_PERCENT,
        "the sham's interval lacks 0": not null.holds_zero,
    }
    return "; ".join(text for text, is_so in checks.items() if is_so) or "holds"


def main() -> None:
    """Measure all loops, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=6.0, help="of each loop")
    parser.add_argument("--loops", nargs="+", choices=(*LOOPS, f"data-bound{BARE}"), default=LOOPS)
    parser.add_argument("--seed", type=int, default=1, help="of the order of the blocks")
    parser.add_argument(
        "--quick", action="store_true", help="try it in less than a minute; writes nothing down"
    )
    options = parser.parse_args()
    minutes, loops = (
        (0.25, options.loops[:1]) if options.quick else (options.minutes, options.loops)
    )
    lines = [
        "| | blocks | step | slower by | sham | detectable | foreseen | held | work | rate |",
        "|---|---:|---:|---|---|---:|---:|---|---:|---:|",
    ]
    for kind in loops:
        lines += rows(kind, *measure(kind, minutes, options.seed))
        print("\n".join(lines[-2:]), flush=True)
    if not options.quick:
        limits = HIGHEST_PERCENT, WIDEST_PERCENT
        names = ("minutes", "shortest", "longest", "settled", "highest", "widest")
        values = dict(zip(names, (minutes, SHORTEST_S, LONGEST_S, SETTLED_S, *limits), strict=True))
        write_section("Cost to the target's throughput", METHOD.format(**values), lines)
