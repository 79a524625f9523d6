"""A torch process of more than 160 threads under profd: how much slower, whether it ever hangs or is left stopped.

Run on a quiet machine: ``python benchmarks/many_threads.py [--rounds 20] [--steps 600] [--quick]``; about 10 minutes.
Writes its section of ``docs/measurements.md``, unless quick. A round is three fresh processes: one under profd, one
bare, and another bare one as null control; their order changes from round to round.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import load
from measurements import write_section
from paired import distinguish, effect

from profd.daemon import processes

FEWEST_THREADS = 160
LOOK_S, LOOKS_TO_TASKS = 0.005, 10
HANG_S = 60.0
KINDS = ("profd", "bare", "null")
METHOD = (
    "`benchmarks/many_threads.py`: {rounds} rounds of a fixed amount of work in a torch process of {threads} OS "
    "threads, in fresh processes under `profd run --headless`, bare, and bare once more as null control, in changing "
    "order. In brackets 95 % intervals of the mean ratio. Each run is checked: it ends within {hang:.0f} s, with "
    "exit code 0, and is never seen stopped (state T or t) while its main thread is looked at every 5 ms and all of "
    "its threads every 50 ms."
)


class Ended(NamedTuple):
    """A run: seconds of the work (None where it hung), exit code, threads, and looks at its state with those in T."""

    seconds: float | None
    exit_code: int | None
    threads: int
    looks: int
    stopped: int


class StateWatch(threading.Thread):
    """Looks at the states of a process's threads every few milliseconds, and counts how often one was stopped."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.looks = self.stopped = 0
        self._pid = pid
        self._over = threading.Event()

    def run(self) -> None:
        """Look until the process is gone or nobody needs to know any more."""
        while not self._over.wait(LOOK_S):
            # All threads less often: with hundreds of them a look would keep a core busy.
            tasks = processes.thread_ids(self._pid) if self.looks % LOOKS_TO_TASKS == 0 else [self._pid]
            states = [stat.state for task in tasks if (stat := processes.read_stat(self._pid, task))]
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
        load.wait_ready(process)
        watch = StateWatch(script_pid(process.pid) if is_profiled else process.pid)
        watch.start()
        try:
            said, _ = process.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.communicate()
            return Ended(None, None, 0, watch.looks, watch.stopped)
        finally:
            watch.close()
    threads, seconds = said.split() if process.returncode == 0 else ("0", "nan")
    return Ended(float(seconds), process.returncode, int(threads), watch.looks, watch.stopped)


def script_pid(launcher_pid: int) -> int:
    """Return the PID of the load that a launcher started."""
    words = load.command("many_threads")[1]
    found = [pid for pid in processes.children(launcher_pid) if words in processes.command_line(pid)[:2]]
    return found[0]


def take_round(number: int, steps: int) -> dict[str, Ended]:
    """Run all kinds once, beginning with another one each time."""
    turned = [*KINDS[number % 3 :], *KINDS[: number % 3]]
    return {kind: run(steps, is_profiled=kind == "profd") for kind in turned}


def failures(rounds: Sequence[dict[str, Ended]], kind: str) -> tuple[int, int, int]:
    """Return how many runs of a kind hung, failed, and were seen stopped."""
    runs = [taken[kind] for taken in rounds]
    return (
        sum(run.seconds is None for run in runs),
        sum(run.exit_code not in (0, None) for run in runs),
        sum(run.stopped > 0 for run in runs),
    )


def summary(rounds: Sequence[dict[str, Ended]]) -> list[str]:
    """Return the table: what was compared over the rounds in which all runs ended, and what was checked in all."""
    whole = [taken for taken in rounds if all(run.exit_code == 0 for run in taken.values())]
    times = {kind: [taken[kind].seconds or 0.0 for taken in whole] for kind in KINDS}
    pairs = list(zip(times["profd"], times["bare"], strict=True))
    nulls = list(zip(times["null"], times["bare"], strict=True))
    looks = sum(run.looks for taken in rounds for run in taken.values())
    lines = ["| | time to bare | hung | failed | seen stopped |", "|---|---|---:|---:|---:|"]
    for name, kind, compared in (("under profd", "profd", pairs), ("null control", "null", nulls)):
        ratio = effect(compared).as_ratio() if len(compared) > 1 else "too few runs"
        hung, failed, stopped = failures(rounds, kind)
        lines.append(f"| {name} | {ratio} | {hung} | {failed} | {stopped} |")
    verdict = f" profd is {distinguish(pairs, nulls)}." if whole else ""
    return [*lines, "", f"{looks:,} looks in all.{verdict}"]


def main() -> None:
    """Measure, write the section, and fail where a run hung, failed or was stopped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--quick", action="store_true", help="try it in less than a minute; writes nothing down")
    options = parser.parse_args()
    count, steps = (2, 100) if options.quick else (options.rounds, options.steps)
    rounds = []
    for number in range(count):
        rounds.append(take_round(number, steps))
        print(f"round {number + 1}: {rounds[-1]}", flush=True)
    threads = min(run.threads for taken in rounds for run in taken.values() if run.exit_code == 0)
    if threads < FEWEST_THREADS:
        sys.exit(f"only {threads} threads: nothing was measured that was to be")
    lines = summary(rounds)
    print("\n".join(lines))
    if not options.quick:
        write_section("A process of many threads", METHOD.format(rounds=count, threads=threads, hang=HANG_S), lines)
    sys.exit(any(any(failures(rounds, kind)) for kind in KINDS))


if __name__ == "__main__":
    main()
