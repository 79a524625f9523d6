"""How true profd's stacks, shares and intervals are, beside bare py-spy: on programs whose calls
and phases are known.

Run on a quiet machine: ``python benchmarks/run.py oracle [--seconds 60] [--runs 10] [--jobs 2]
[--busy 0] [--python PATH ...] [PROGRAM ...]``; writes its section of ``docs/measurements.md``,
which ``--title`` names. The programs lie in ``benchmarks/truth/known`` and keep a diary of their
phases, so that a machine that runs them late does not make them false.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from common.load import busy
from common.measurements import write_section
from truth.programs import Diary, Program, Stack, known_programs, read_program, running

from profd.daemon.analyze.confidence import margin, student_95
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.uncertainty import ShareVariance
from profd.daemon.clock import SECOND_NS
from profd.daemon.stacks.pyspy import find_py_spy
from profd.daemon.store.reader import RunReader

RATE_HZ = 100.0
WITHIN = 0.02
PIECE_S = 2.0
HEAD = (
    "program",
    "recorder",
    "runs",
    "rate",
    "impossible",
    "failed",
    "dropped",
    "usable",
    "bias",
    "± 2 points",
    "held",
    "pieces",
)
METHOD = (
    "`benchmarks/truth/oracle.py`: each program is recorded {runs} times for {seconds} s at 100 Hz by "
    "profd{budget}, {jobs} at once{busy}{beside}. Rate: the mean of profd's recordings, which its "
    "budget may lower. Impossible: of the stacks kept, those with no frames, a root where no "
    "thread begins, or a call that the program does not make. Failed: reads that py-spy gave up. "
    "Dropped: stacks that profd recognized as torn. Usable: neither. Bias: the mean error of the "
    "share that is furthest off, in points, with its 95 % interval over the runs. ± 2 points: how "
    "many shares of the runs lie so near the truth. Held: how many of the 95 % intervals shown "
    "hold it, of whole runs; pieces: of their single recordings, of some seconds each."
)
BESIDE = ", and once by `py-spy record --idle` with and without `--nonblocking`"


class Judged(NamedTuple):
    """A share: by how much it is off, and by how much it says that it may be (nan: it does not
    say).
    """

    phase: str
    error: float
    margin: float

    @property
    def is_held(self) -> bool:
        """Say whether its interval holds the truth."""
        return abs(self.error) <= self.margin


class Outcome(NamedTuple):
    """One run by one recorder."""

    kept: int
    impossible: int
    failed: int
    dropped: int
    rate_hz: float
    shares: tuple[Judged, ...]
    pieces: tuple[Judged, ...] = ()


def run_profd(python: str, program: Program, seconds: int, budget: float | None) -> Outcome | None:
    """Record one run of a program with profd; its budget is the default one where none is given."""
    with tempfile.TemporaryDirectory() as folder, running(python, program, Path(folder)) as target:
        if target is None:
            return None
        run_file = Path(folder) / "run.profd"
        words = [
            "-m",
            "profd",
            "attach",
            str(target.pid),
            "--headless",
            "--duration",
            str(seconds),
            "-o",
            str(run_file),
            *(() if budget is None else ("--budget", str(budget))),
        ]
        subprocess.run([sys.executable, *words], stderr=subprocess.DEVNULL, check=True)
        with RunReader(run_file) as reader:
            return judge_run(reader, program, target.finish())


def judge_run(reader: RunReader, program: Program, diary: Diary) -> Outcome:
    """Compare a run with what its program says."""
    recordings = reader.recordings()
    stacks = take_profile(reader, Selection()).samples
    named = {stack: tuple(frame.function for frame in reader.frames_of(stack)) for stack in stacks}
    pieces = [row for row in recordings if row.end_ns - row.start_ns >= PIECE_S * SECOND_NS]
    return Outcome(
        kept=sum(stacks.values()),
        impossible=sum(
            samples for stack, samples in stacks.items() if program.is_impossible(named[stack])
        ),
        failed=sum(row.errors for row in recordings),
        dropped=sum(row.torn for row in recordings),
        rate_hz=statistics.mean(row.rate_hz for row in recordings),
        shares=tuple(judge(reader, program, diary, recordings[0].start_ns, recordings[-1].end_ns)),
        pieces=tuple(
            one for row in pieces for one in judge(reader, program, diary, row.start_ns, row.end_ns)
        ),
    )


def judge(
    reader: RunReader, program: Program, diary: Diary, from_ns: int, to_ns: int
) -> Iterator[Judged]:
    """Judge the shares of phases in a range of time.

    The last phase is the rest, and tells nothing new.
    """
    profile = take_profile(reader, Selection(from_ns=from_ns, to_ns=to_ns))
    phases = {
        stack: program.phase_of(tuple(frame.function for frame in reader.frames_of(stack)))
        for stack in profile.time_ns
    }
    doubt = ShareVariance(
        profile.changes,
        lambda stack: frozenset({phase} if (phase := phases.get(stack)) else ()),
    )
    whole_ns = sum(spent for stack, spent in profile.time_ns.items() if phases[stack])
    for phase, true in list(diary.shares(from_ns, to_ns).items())[:-1]:
        share = sum(spent for stack, spent in profile.time_ns.items() if phases[stack] == phase) / (
            whole_ns or 1
        )
        yield Judged(phase, share - true, margin(doubt.standard_error(phase, share, whole_ns)))


def run_py_spy(python: str, program: Program, seconds: int, *options: str) -> Outcome | None:
    """Record one run of a program with py-spy alone."""
    with tempfile.TemporaryDirectory() as folder, running(python, program, Path(folder)) as target:
        if target is None:
            return None
        output = Path(folder) / "stacks.raw"
        words = [
            "record",
            "--idle",
            "--rate",
            "100",
            "--format",
            "raw",
            "--duration",
            str(seconds),
            *options,
        ]
        from_ns = time.time_ns()
        ran = subprocess.run(
            [find_py_spy(), *words, "--output", str(output), "--pid", str(target.pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        truth = target.finish().shares(from_ns, time.time_ns())
        errors = re.search(r"Errors: (\d+)", ran.stdout + ran.stderr)
        return judge_collapsed(
            list(collapsed(output)), program, truth, int(errors[1]) if errors else 0
        )


def judge_collapsed(
    stacks: Sequence[tuple[Stack, int]], program: Program, truth: dict[str, float], failed: int
) -> Outcome:
    """Compare counted stacks with what their program says."""
    found: Counter[str | None] = Counter()
    for stack, samples in stacks:
        found[program.phase_of(stack)] += samples
    whole = sum(samples for phase, samples in found.items() if phase) or 1
    return Outcome(
        kept=sum(samples for _, samples in stacks),
        impossible=sum(samples for stack, samples in stacks if program.is_impossible(stack)),
        failed=failed,
        dropped=0,
        rate_hz=RATE_HZ,
        shares=tuple(
            Judged(phase, found[phase] / whole - true, float("nan"))
            for phase, true in truth.items()
        ),
    )


def collapsed(file: Path) -> Iterator[tuple[Stack, int]]:
    """Yield the stacks of py-spy's raw format."""
    for line in file.read_text(errors="replace").splitlines():
        stack, _, samples = line.rpartition(" ")
        yield tuple(frame.rpartition(" (")[0] for frame in stack.split(";")), int(samples)


def table_row(name: str, recorder: str, outcomes: Sequence[Outcome | None]) -> str:
    """Return the row of one program with one recorder."""
    found = [outcome for outcome in outcomes if outcome is not None]
    if not found:
        return f"| {name} | {recorder} | cannot be run |{'  |' * (len(HEAD) - 3)}"
    kept, failed, dropped = (
        sum(getattr(one, what) for one in found) for what in ("kept", "failed", "dropped")
    )
    tried = max(kept + failed + dropped, 1)
    shares, pieces = (
        [one for run in found for one in run.shares],
        [one for run in found for one in run.pieces],
    )
    cells = [
        *(name, recorder, str(len(found))),
        f"{statistics.mean(one.rate_hz for one in found):.0f} Hz",
        f"{100 * sum(one.impossible for one in found) / max(kept, 1):.2f} %",
        *(f"{100 * part / tried:.2f} %" for part in (failed, dropped, kept)),
        bias(shares),
        f"{sum(abs(one.error) <= WITHIN for one in shares)} of {len(shares)}",
        held(shares) if recorder == "profd" else "",
        held(pieces) if recorder == "profd" else "",
    ]
    return f"| {' | '.join(cells)} |"


def bias(shares: Sequence[Judged]) -> str:
    """Return the mean error of the phase that is furthest off, in points."""
    errors = {
        phase: [100 * one.error for one in shares if one.phase == phase]
        for phase in {one.phase for one in shares}
    }
    worst = max(errors.values(), key=lambda found: abs(statistics.mean(found)))
    if len(worst) < 2:
        return f"{worst[0]:+.2f}"
    around = student_95(len(worst) - 1) * statistics.stdev(worst) / len(worst) ** 0.5
    return f"{statistics.mean(worst):+.2f} ± {around:.2f}"


def held(shares: Sequence[Judged]) -> str:
    """Return how many intervals hold the truth."""
    count = sum(one.is_held for one in shares)
    return f"{count} of {len(shares)}" + (
        f", {100 * count / len(shares):.0f} %" if len(shares) >= 20 else ""
    )


def measure(
    python: str, name: str, options: argparse.Namespace, pool: ThreadPoolExecutor
) -> Iterator[str]:
    """Record one program with each recorder."""
    program = read_program(name)
    by_profd = [
        pool.submit(run_profd, python, program, options.seconds, options.budget)
        for _ in range(options.runs)
    ]
    modes = (
        {}
        if options.profd_only
        else {"py-spy, nonblocking": ("--nonblocking",), "py-spy, blocking": ()}
    )
    by_py_spy = {
        mode: pool.submit(run_py_spy, python, program, min(options.seconds, 30), *words)
        for mode, words in modes.items()
    }
    yield table_row(name, "profd", [run.result() for run in by_profd])
    for mode, run in by_py_spy.items():
        yield table_row(name, mode, [run.result()])


def main() -> None:
    """Measure all programs with all interpreters, print the tables and write them down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument(
        "--jobs", type=int, default=2, help="runs at once; each takes a few percent of a core"
    )
    parser.add_argument(
        "--busy", type=int, default=0, help="programs that compute all the time beside each run"
    )
    parser.add_argument(
        "--budget", type=float, help="of profd, in percent of a core; the default one if not given"
    )
    parser.add_argument("--python", action="append", help="an interpreter to run the programs with")
    parser.add_argument("--profd-only", action="store_true", help="leave out py-spy alone")
    parser.add_argument(
        "--title", default="Truth of stacks and shares", help="the section to write"
    )
    parser.add_argument("programs", nargs="*", default=known_programs())
    options = parser.parse_args()
    lines: list[str] = []
    with ThreadPoolExecutor(options.jobs) as pool, busy(options.busy):
        for python in options.python or [sys.executable]:
            version = subprocess.run(
                [python, "--version"], capture_output=True, text=True, check=True
            ).stdout.strip()
            lines += [
                "",
                f"{version}:",
                "",
                f"| {' | '.join(HEAD)} |",
                f"|---|---|{'---:|' * (len(HEAD) - 2)}",
            ]
            for name in options.programs:
                for line in measure(python, name, options, pool):
                    print(line, flush=True)
                    lines.append(line)
    write_section(
        options.title,
        METHOD.format(
            runs=options.runs,
            seconds=options.seconds,
            jobs=options.jobs,
            budget=""
            if options.budget is None
            else f" with a budget of {options.budget:g} % of a core",
            busy=f", beside {options.busy} busy loop{'s' * (options.busy > 1)}"
            if options.busy
            else "",
            beside="" if options.profd_only else BESIDE,
        ),
        lines[1:],
    )
