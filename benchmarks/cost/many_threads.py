"""A torch process of more than 160 threads under profd: how much slower, whether it ever hangs or
is left stopped.

Run on a quiet machine: ``python benchmarks/run.py many_threads [--rounds 20] [--steps 1000]
[--quick]``; about 10 minutes. Writes its section of ``docs/measurements.md``, unless quick. A round
is three fresh processes: one under profd, one bare, and another bare one as null control; their
order changes from round to round.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common import load
from common.measurements import write_section
from common.paired import Pairs, distinguish, effect
from common.steps import Took

from profd.daemon import processes

FEWEST_THREADS = 160
LOOK_S, LOOKS_TO_TASKS = 0.005, 10
HANG_S = 60.0
NAMES = {"profd": "under profd", "bare": "bare", "null": "null control"}
KINDS = tuple(NAMES)
METHOD = (
    "`benchmarks/cost/many_threads.py`: {rounds} rounds of a fixed amount of work in a torch process "
    "of {threads} OS threads, in fresh processes under `profd run --headless`, bare, and bare "
    "once more as null control, in changing order. Wall is by the clock, CPU the CPU time of all "
    "threads. In brackets 95 % intervals of the mean ratio, which is to be at most 1.05. Each run "
    "is checked: it ends within {hang:.0f} s, with exit code 0, and is never seen stopped (state "
    "T or t) while its main thread is looked at about every 5 ms and all of its threads every 50 "
    "ms."
)


class Ended(NamedTuple):
    """A run: what the work took, exit code (None where it hung), threads, and looks at its state.

    ``took`` is None where the work was not done; ``stopped`` counts the looks that found a thread
    in T or t.
    """

    took: Took | None
    exit_code: int | None
    threads: int
    looks: int
    stopped: int


class StateWatch(threading.Thread):
    """Looks at the states of a process's threads every few milliseconds, and counts how often one
    was stopped.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.looks = self.stopped = 0
        self._pid = pid
        self._over = threading.Event()

    def run(self) -> None:
        """Look until the process is gone or nobody needs to know any more."""
        while not self._over.wait(LOOK_S):
            # All threads less often: with hundreds of them a look would keep a core busy.
            tasks = (
                processes.thread_ids(self._pid) if self.looks % LOOKS_TO_TASKS == 0 else [self._pid]
            )
            states = [
                stat.state for task in tasks if (stat := processes.read_stat(self._pid, task))
            ]
            self.stopped += any(state in "Tt" for state in states)
            self.looks += 1

    def close(self) -> None:
        """Look no longer."""
        self._over.set()
        self.join()


def run(steps: int, *, is_profiled: bool) -> Ended:
    """Do the work once in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "run.profd")
        profd = [sys.executable, "-m", "profd", "run", "--headless", "--quiet", "-o", output, "--"]
        words = [*(profd if is_profiled else []), *load.command("many_threads", steps)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        watch = StateWatch(script_pid(process) if is_profiled else process.pid)
        watch.start()
        said = _said_in_time(process)
        watch.close()
    if said is None or process.returncode:
        return Ended(
            None, None if said is None else process.returncode, 0, watch.looks, watch.stopped
        )
    threads, wall_s, cpu_s = said.splitlines()[-1].split()
    return Ended(Took(float(wall_s), float(cpu_s)), 0, int(threads), watch.looks, watch.stopped)


def _said_in_time(process: subprocess.Popen[str]) -> str | None:
    """Return what a process said until its end; None, with the process killed, where it hangs."""
    try:
        return process.communicate(timeout=HANG_S)[0]
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()
        return None


def script_pid(launcher: subprocess.Popen[str]) -> int:
    """Wait until a launcher has started the load, and return the load's PID."""
    words = load.command("many_threads")
    while launcher.poll() is None:
        for pid in processes.children(launcher.pid):
            if processes.command_line(pid)[: len(words)] == tuple(words):
                return pid
        time.sleep(0.005)
    sys.exit(f"profd ended with {launcher.returncode} before it had started the load")


def take_round(number: int, steps: int) -> dict[str, Ended]:
    """Run all kinds once, beginning with another one each time."""
    turned = [*KINDS[number % 3 :], *KINDS[: number % 3]]
    return {kind: run(steps, is_profiled=kind == "profd") for kind in turned}


def failures(rounds: Sequence[dict[str, Ended]], kind: str) -> tuple[int, int, int]:
    """Return how many runs of a kind hung, failed, and were seen stopped."""
    runs = [taken[kind] for taken in rounds]
    return (
        sum(run.exit_code is None for run in runs),
        sum(run.exit_code not in (0, None) for run in runs),
        sum(run.stopped > 0 for run in runs),
    )


def summary(rounds: Sequence[dict[str, Ended]]) -> list[str]:
    """Return the tables: what was checked in all rounds, and what was compared over those in which
    all runs ended.
    """
    lines = ["| | hung | failed | seen stopped |", "|---|---:|---:|---:|"]
    for kind, name in NAMES.items():
        lines.append(f"| {name} | {' | '.join(map(str, failures(rounds, kind)))} |")
    looks = sum(run.looks for taken in rounds for run in taken.values())
    return [*lines, "", f"{looks:,} looks at their states in all.", "", *compared(rounds)]


def compared(rounds: Sequence[dict[str, Ended]]) -> list[str]:
    """Return the table of the ratios to the bare runs."""
    lines = ["| | under profd to bare | null control | the cost is |", "|---|---|---|---|"]
    for field, clock in enumerate(("wall", "CPU")):
        pairs, nulls = pairs_of(rounds, "profd", field), pairs_of(rounds, "null", field)
        if len(pairs) > 1:
            cells = effect(pairs).as_ratio(), effect(nulls).as_ratio(), distinguish(pairs, nulls)
            lines.append(f"| {clock} | {' | '.join(map(str, cells))} |")
    return lines


def pairs_of(rounds: Sequence[dict[str, Ended]], kind: str, field: int) -> Pairs:
    """Return one field of ``Took`` of a kind with that of the bare run, of the rounds in which all
    work was done.
    """
    found = []
    for taken in rounds:
        times = {each: run.took[field] for each, run in taken.items() if run.took}
        if len(times) == len(KINDS):
            found.append((times[kind], times["bare"]))
    return found


def main() -> None:
    """Measure, write the section, and fail where a run hung, failed or was stopped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument(
        "--quick", action="store_true", help="try it in less than a minute; writes nothing down"
    )
    options = parser.parse_args()
    count, steps = (2, 100) if options.quick else (options.rounds, options.steps)
    rounds = []
    for number in range(count):
        rounds.append(take_round(number, steps))
        print(f"round {number + 1}: {rounds[-1]}", flush=True)
    threads = min(run.threads for taken in rounds for run in taken.values() if run.took)
    if threads < FEWEST_THREADS:
        sys.exit(f"only {threads} threads: nothing was measured that was to be")
    lines = summary(rounds)
    print("\n".join(lines))
    if not options.quick:
        write_section(
            "A process of many threads",
            METHOD.format(rounds=count, threads=threads, hang=HANG_S),
            lines,
        )
    sys.exit(any(any(failures(rounds, kind)) for kind in KINDS))
