"""How well profd tells the phases of training loops, beside what the programs time themselves.

Run on a quiet machine: ``python benchmarks/run.py phases [--cache FOLDER] [--keep FOLDER] [PROGRAM
...]``, about twenty minutes; writes its section of ``docs/measurements.md``. The programs lie in
``benchmarks/truth/frameworks``. Each runs twice under ``profd run``: unchanged, and timing its own
phases by ``phasetruth.py``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import platformdirs
from common.environment import Environment, make_environment
from common.measurements import write_section

from profd.daemon.analyze.phases import OTHER, PHASES
from profd.daemon.analyze.steps import Steps
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import STEP_COUNT

HERE = Path(__file__).parent
STARTUP = "startup, import"
MOST_OTHER = 0.10
LARGEST_DISTANCE = 0.05
LEAST_SHOWN = 0.003
HAS_COMPILER = any(shutil.which(name) for name in ("g++", "c++", "clang++"))
PROGRAMS: dict[str, tuple[str, ...]] = {
    "plain": ("convolutional.py", "--epochs", "12"),
    "plain, 2 workers": ("convolutional.py", "--epochs", "12", "--workers", "2"),
    "plain, 4 batches a step": ("convolutional.py", "--epochs", "12", "--accumulate", "4"),
    "plain, bfloat16 autocast": ("convolutional.py", "--epochs", "15", "--bfloat16"),
    "LSTM": ("language.py", "lstm", "--steps", "600"),
    "transformer": ("language.py", "transformer", "--steps", "350"),
    "Accelerate": ("accelerated.py", "--steps", "10000"),
    "torch.func": ("functional.py", "--steps", "1200"),
    "NumPy alone": ("numeric.py", "--steps", "2500"),
    "instrumented": ("instrumented.py", "--epochs", "64"),
    "torch.compile, aot_eager": ("compiled.py", "--backend", "aot_eager", "--steps", "800"),
    **({"torch.compile, inductor": ("compiled.py", "--steps", "1500")} if HAS_COMPILER else {}),
    "Hugging Face, GPT-2": ("huggingface.py", "gpt2", "--steps", "250"),
    "Hugging Face, BERT, 2 workers": ("huggingface.py", "bert", "--steps", "300", "--workers", "2"),
    "Lightning": ("lightning_fit.py", "--epochs", "10"),
    "Lightning, 2 workers": ("lightning_fit.py", "--epochs", "10", "--workers", "2"),
}
"""Each takes half a minute and more."""
METHOD = (
    "`benchmarks/truth/phases.py`: each program of `benchmarks/truth/frameworks` runs unchanged under `profd "
    "run` at 100 Hz, which tells the shares of the phases and the steps; and once more with its "
    "own phases timed, by functions of torch and the frameworks that are wrapped for it "
    "(`phasehooks.py`), under profd again. Distance is the total variation, in points, between "
    "profd and the program's own times: of the same run, and of the two runs. Three thousand "
    "samples leave one or two by chance. Shares are in percent of the time after startup, of the "
    "unchanged run / by the program's own times; phases below 0.3 % everywhere have no column. The "
    "shares are right if *other* is below 10 % and the distance in the same run is below 5 "
    "points. Steps are those that `profd summary --json` tells of the unchanged run. Their rate is "
    "that of the run that is timed, beside its own: of its backward passes, from the first "
    "reading of its counter to the last; where its steps were counted by their cycles, of all its "
    "steps. One torch thread; {versions}."
)


@dataclass(frozen=True)
class Shares:
    """The shares of phases in the time after startup, 0 to 1, and how long startup was."""

    of_phase: Mapping[str, float]
    startup_s: float

    @classmethod
    def of(cls, spent_s: Mapping[str, float]) -> Shares:
        """Return the shares of the seconds spent in each phase."""
        after = {name: seconds for name, seconds in spent_s.items() if name != STARTUP}
        whole_s = sum(after.values())
        return cls(
            {name: seconds / whole_s for name, seconds in after.items()}, spent_s.get(STARTUP, 0.0)
        )

    def __getitem__(self, phase: str) -> float:
        return self.of_phase.get(phase, 0.0)

    def distance(self, other: Shares) -> float:
        """Return the total variation of the two, 0 to 1."""
        return sum(abs(self[name] - other[name]) for name in {*self.of_phase, *other.of_phase}) / 2


class Readout(NamedTuple):
    """What profd tells of a run, and from when to when it read a counter of its steps."""

    shares: Shares
    steps: Steps
    counted_ns: tuple[int, int] | None


class Judged(NamedTuple):
    """A program: profd's shares of the unchanged run and of the timed one, the program's own of the
    latter; and steps.

    ``steps`` are those of the unchanged run, which made ``true_steps``; ``timed`` those of the
    timed run, which made ``true_per_s`` a second while they were counted.
    """

    shares: Shares
    of_timed: Shares
    true: Shares
    steps: Steps
    true_steps: int
    timed: Steps
    true_per_s: float

    @property
    def is_right(self) -> bool:
        """Whether little is called other, and what is called anything else is that."""
        return (
            self.shares[OTHER] < MOST_OTHER and self.of_timed.distance(self.true) < LARGEST_DISTANCE
        )


def judge(environment: Environment, words: Sequence[str], kept: Path) -> Judged:
    """Run a program unchanged and timed, both under profd."""
    program = [str(HERE / "frameworks" / words[0]), *words[1:]]
    unchanged, timed, diary = (kept / name for name in ("unchanged.profd", "timed.profd", "diary"))
    kept.mkdir(parents=True)
    output = run(unchanged, [environment.python, *program])
    run(
        timed,
        [
            environment.python,
            str(HERE / "phasetruth.py"),
            str(diary),
            str(time.time_ns()),
            *program,
        ],
    )
    true = read_diary(diary)
    unchanged_run, timed_run = (
        read_run(one, frozenset(true.of_phase)) for one in (unchanged, timed)
    )
    true_per_s = paced(read_passes(diary), timed_run.counted_ns)
    return Judged(
        unchanged_run.shares,
        timed_run.shares,
        true,
        unchanged_run.steps,
        steps_made(output),
        timed_run.steps,
        true_per_s,
    )


def run(run_file: Path, words: Sequence[str]) -> str:
    """Record a program, with one torch thread and a compiler that has cached nothing.

    Return its output.
    """
    profd = [
        sys.executable,
        "-m",
        "profd",
        "run",
        "--headless",
        "--quiet",
        "-o",
        str(run_file),
        "--",
    ]
    with tempfile.TemporaryDirectory() as folder:
        given = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": folder, "PROFD_HOME": folder}
        done = subprocess.run(
            [*profd, *words], env={**os.environ, **given}, capture_output=True, text=True
        )
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def steps_made(output: str) -> int:
    """Return the steps that a program says at its end to have made."""
    return int(output.split()[-3])


def read_run(run_file: Path, names: frozenset[str]) -> Readout:
    """Return what profd tells of a run: phases, and what it names of *other* where the program has
    it by that name.
    """
    with RunReader(run_file) as reader:
        summary = summarize(reader)
        counts = [
            point.at_ns for row in reader.list_series(STEP_COUNT) for point in reader.points(row.id)
        ]
        counted_ns = (min(counts), max(counts)) if len(counts) > 1 else None
    named = {name: share for name, share in summary.rest.get(OTHER, {}).items() if name in names}
    shares = {
        **summary.phases,
        OTHER: summary.phases.get(OTHER, 0.0) - sum(named.values()),
        **named,
    }
    spent_s = {name: share * summary.duration_s for name, share in shares.items()}
    return Readout(Shares.of(spent_s), summary.steps, counted_ns)


def read_diary(diary: Path) -> Shares:
    """Return what a program tells of itself.

    A line of its diary says from when on it was in a phase.
    """
    spent_s: defaultdict[str, float] = defaultdict(float)
    for (from_ns, phase), (to_ns, _) in itertools.pairwise(_changes(diary)):
        spent_s[phase] += (to_ns - from_ns) / SECOND_NS
    return Shares.of(spent_s)


def read_passes(diary: Path) -> list[int]:
    """Return when the backward passes of a program began: one a step, which may be interrupted for
    a moment.
    """
    passes: list[int] = []
    is_new = True
    for at_ns, phase in _changes(diary):
        if phase == "backward" and is_new:
            passes.append(at_ns)
        is_new = phase == "forward" or (is_new and phase != "backward")
    return passes


def _changes(diary: Path) -> list[tuple[int, str]]:
    lines = (line.split(" ", 1) for line in diary.read_text().splitlines())
    return [(int(at_ns), phase) for at_ns, phase in lines]


def paced(passes: Sequence[int], counted_ns: tuple[int, int] | None) -> float:
    """Return the passes a second from one time to another, a part of one at each end.

    Else from the first to the last.

    nan where there are less than two.
    """
    if len(passes) < 2:
        return math.nan
    from_ns, to_ns = counted_ns or (passes[0], passes[-1] - 1)
    return (_made_by(passes, to_ns) - _made_by(passes, from_ns)) * SECOND_NS / (to_ns - from_ns)


def _made_by(passes: Sequence[int], at_ns: int) -> float:
    """Return how many passes there were by a time, with the part of the one that was under way."""
    made = bisect_right(passes, at_ns)
    if not 0 < made < len(passes):
        return made
    return made + (at_ns - passes[made - 1]) / (passes[made] - passes[made - 1])


def shares_table(judged: Mapping[str, Judged]) -> list[str]:
    """Return the shares, a row a program."""
    names = dict.fromkeys(
        (
            *(phase.name for phase in PHASES),
            *(name for one in judged.values() for name in one.true.of_phase),
        )
    )
    shown = [name for name in names if name != STARTUP and is_shown(name, judged)]
    head = ["program", *shown, "distance", "of two runs", "startup, s", ""]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, one in judged.items():
        cells = [
            name,
            *(f"{100 * one.shares[phase]:.1f} / {100 * one.true[phase]:.1f}" for phase in shown),
            f"{100 * one.of_timed.distance(one.true):.1f}",
            f"{100 * one.shares.distance(one.true):.1f}",
            f"{one.shares.startup_s:.1f} / {one.true.startup_s:.1f}",
            "right" if one.is_right else "**wrong**",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def is_shown(phase: str, judged: Mapping[str, Judged]) -> bool:
    """Say whether a phase has a column: *other* always, else one that any program spends time in."""
    return phase == OTHER or any(
        max(one.shares[phase], one.true[phase]) >= LEAST_SHOWN for one in judged.values()
    )


def steps_table(judged: Mapping[str, Judged]) -> list[str]:
    """Return the steps, a row a program."""
    rows = [
        "| program | steps made | profd counts | by | timed run: a second | profd says | off by |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    for name, one in judged.items():
        steps, timed = one.steps, one.timed
        count = "unknown" if steps.count is None else f"{steps.count} ± {steps.count_error}"
        pace = off = "unknown"
        if timed.per_s is not None:
            pace = f"{timed.per_s:.2f} ± {timed.per_s_error or 0:.2f}"
            off = f"{100 * (timed.per_s / one.true_per_s - 1):+.1f} %"
        cells = [
            name,
            one.true_steps,
            count,
            steps.source or "none",
            f"{one.true_per_s:.2f}",
            pace,
            off,
        ]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def main() -> None:
    """Judge all programs, print the tables and write them down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--cache", type=Path, default=Path(platformdirs.user_cache_dir("profd")) / "benchmarks"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the run files and diaries")
    parser.add_argument("--title", default="Phases of training loops", help="the section to write")
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM", default=list(PROGRAMS), help="; ".join(PROGRAMS)
    )
    options = parser.parse_args()
    environment = make_environment(options.cache)
    judged: dict[str, Judged] = {}
    with tempfile.TemporaryDirectory() as folder:
        kept = options.keep or Path(folder)
        for name in options.programs:
            judged[name] = judge(
                environment, PROGRAMS[name], kept / name.replace(", ", "-").replace(" ", "-")
            )
            print(
                *shares_table({name: judged[name]}),
                *steps_table({name: judged[name]}),
                "",
                sep="\n",
                flush=True,
            )
    lines = [*shares_table(judged), "", *steps_table(judged)]
    print("\n".join(lines))
    write_section(options.title, METHOD.format(versions=environment.versions()), lines)
    sys.exit(not all(one.is_right for one in judged.values()))
