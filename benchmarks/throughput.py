"""What profd costs a training's steps: recording is switched on and off within one process, in short random blocks.

Run on a quiet machine: ``python benchmarks/throughput.py [--minutes 5] [--quick]``; some 6 minutes for each of four
loops. Writes its section of ``docs/measurements.md``, unless quick.

Off: profd's session is stopped (SIGSTOP), py-spy's recording is ended and waited for, and everything else of profd is
stopped, so nothing reads the loop. On: all goes on; the session takes the recording that was ended, and starts the
next. So each block that is on has a start of py-spy, which else comes every nine seconds: the cost found is an upper
bound. As profd counts its cost by the clock, its budget is halved here.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import load
import numpy as np
from measurements import write_section
from meters import cpu_with_children_s
from recorders import Profd
from switched import Block, Estimate, Taken, estimate, plan, take_blocks

from profd.daemon import processes

SHORTEST_S, LONGEST_S = 0.5, 1.5
PILOT_SHARE = 0.2
HIGHEST_PERCENT, WIDEST_PERCENT = 0.4, 0.25
BUDGET = "5"
LOOPS = ("small steps", "data-bound", "many threads", "restless")
METHOD = (
    "`benchmarks/throughput.py`: one process a loop, {minutes:g} minutes of blocks of {shortest} to {longest} s in "
    "pseudo-random order, in which `profd attach --headless` at its defaults records or is stopped, py-spy not "
    "running; the budget of 10 % is halved, as half of the time is off. Each block that is on begins with a start of "
    "py-spy, nine times as many as there are without switching: the cost is an upper bound. The loop notes the end of "
    "each step, and the CPU time of the process; steps during a switch count for neither side. The sham is a second "
    "switch, of a process that does nothing. Slower by: the change of the mean step time, by regression on both "
    "switches and a drift that is linear between nodes 30 s apart, with 95 % intervals that allow for autocorrelation "
    "(Newey-West). Capped: each step of more than the 99th percentile of all counts as that, so that what the machine "
    "does now and then weighs less; what profd did to these steps shows in the row above only. Detectable: the cost "
    "that would be found in four of five measurements; foreseen is what a pilot without profd said of it beforehand. "
    "To hold: the upper end at most {highest} %, half the width at most {widest} %, and the sham's interval with 0 in "
    "it. Off: CPU time of profd in blocks that are off, in percent of that in blocks that are on."
)


class Switch:
    """Recording by profd, to be switched: ``cpu_s`` is what profd took while it was on, and while it was off."""

    def __init__(self, profd: Profd) -> None:
        self._profd = profd
        self._session = profd.session_pid
        self._since_s = self._read_s()
        self.is_on = True
        self.cpu_s = {True: 0.0, False: 0.0}

    def _read_s(self) -> float:
        return cpu_with_children_s(self._session)

    def turn(self, is_on: bool) -> None:
        """Have it record or not; returns once that is so."""
        if is_on == self.is_on:
            return
        if is_on:
            self._account()
            for pid in (*self._others(), self._session):
                _send(pid, signal.SIGCONT)
        else:
            _send(self._session, signal.SIGSTOP)  # first: it would start the next recording
            for pid in self._recordings():
                _send(pid, signal.SIGINT)
            while any(_is_running(pid) for pid in self._recordings()):
                time.sleep(0.001)
            for pid in self._others():
                _send(pid, signal.SIGSTOP)
            self._account()
        self.is_on = is_on

    def _account(self) -> None:
        now_s = self._read_s()
        self.cpu_s[self.is_on] += now_s - self._since_s
        self._since_s = now_s

    def _recordings(self) -> list[int]:
        return [pid for pid in processes.children(self._session) if processes.command_line(pid)[:1] == ("py-spy",)]

    def _others(self) -> list[int]:
        recordings = self._recordings()
        return [self._profd.process.pid, *(pid for pid in processes.children(self._session) if pid not in recordings)]


def _is_running(pid: int) -> bool:
    stat = processes.read_stat(pid)
    return stat is not None and stat.state != "Z"


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


def follow(blocks: Sequence[Block], real: Callable[[bool], None]) -> list[tuple[float, float, bool, bool]]:
    """Go through the blocks; returns from when to when each was, once switched, by the monotonic clock."""
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


def measure(kind: str, minutes: float, seed: int) -> tuple[list[Taken], list[Taken], float]:
    """Measure one loop: blocks of the pilot without profd, those with it, and the share of CPU in blocks off."""
    lengths = 60 * minutes, SHORTEST_S, LONGEST_S
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder) / "steps"
        with load.running("stepping", kind, noted) as loop:
            pilot = follow(plan(max(PILOT_SHARE * lengths[0], 20.0), *lengths[1:], seed), lambda _: None)
            profd = Profd.attach(loop.pid, Path(folder) / "run.profd", "--budget", BUDGET)
            time.sleep(15.0)  # the start, which counts elsewhere
            switch = Switch(profd)
            spans = follow(plan(*lengths, seed + 1), switch.turn)
            profd.end()
            loop.communicate()  # the end of its stdin ends it
        ends_s, cpu_s = np.frombuffer(noted.read_bytes(), np.int64).reshape(-1, 2).T / 1e9
        found = take_blocks(pilot, ends_s, cpu_s), take_blocks(spans, ends_s, cpu_s)
        return *found, switch.cpu_s[False] / max(switch.cpu_s[True], 1e-9)


def rows(kind: str, pilot: Sequence[Taken], blocks: Sequence[Taken], off_share: float) -> list[str]:
    """Return the rows of a loop."""
    found = []
    steps = sum(block.steps for block in blocks)
    for field, clock in (("wall_s", "wall"), ("capped_s", "wall, capped"), ("cpu_s", "CPU")):
        (real, null), (_, foreseen) = estimate(blocks, field), estimate(pilot, field)
        expected = foreseen.detectable * (len(pilot) / len(blocks)) ** 0.5
        step_ms = 1000 * sum(getattr(block, field) for block in blocks) / steps
        cells = f"{real} | {null} | {real.detectable:.2f} % | {expected:.2f} % | {_verdict(real, null)}"
        found.append(f"| {kind}, {clock} | {len(blocks)} | {step_ms:.2f} ms | {cells} | {off_share:.1%} |")
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
    parser.add_argument("--minutes", type=float, default=5.0, help="of each loop")
    parser.add_argument("--loops", nargs="+", choices=LOOPS, default=LOOPS)
    parser.add_argument("--seed", type=int, default=1, help="of the order of the blocks")
    parser.add_argument("--quick", action="store_true", help="try it in less than a minute; writes nothing down")
    options = parser.parse_args()
    minutes, loops = (0.25, options.loops[:1]) if options.quick else (options.minutes, options.loops)
    lines = [
        "| | blocks | step | slower by | sham | detectable | foreseen | held | off |",
        "|---|---:|---:|---|---|---:|---:|---|---:|",
    ]
    for kind in loops:
        lines += rows(kind, *measure(kind, minutes, options.seed))
        print("\n".join(lines[-3:]), flush=True)
    if not options.quick:
        limits = HIGHEST_PERCENT, WIDEST_PERCENT
        names = ("minutes", "shortest", "longest", "highest", "widest")
        values = dict(zip(names, (minutes, SHORTEST_S, LONGEST_S, *limits), strict=True))
        write_section("Cost to the target's throughput", METHOD.format(**values), lines)


if __name__ == "__main__":
    main()
