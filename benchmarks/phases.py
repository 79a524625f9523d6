"""How well profd tells the phases of training loops, beside what the programs time themselves.

Run on a quiet machine: ``python benchmarks/phases.py [--cache FOLDER] [--keep FOLDER] [PROGRAM ...]``, about seven
minutes; writes its section of ``docs/measurements.md``. The programs lie in ``benchmarks/frameworks``. Each runs twice
under ``profd run``: unchanged, and timing its own phases by ``phasetruth.py``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import platformdirs
from environment import Environment, make_environment
from measurements import write_section

from profd.daemon.analyze.phases import OTHER, PHASES
from profd.daemon.analyze.steps.steps import Steps
from profd.daemon.analyze.summary import summarize
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader

HERE = Path(__file__).parent
STARTUP = "startup, import"
MOST_OTHER = 0.10
LARGEST_DISTANCE = 0.05
LEAST_SHOWN = 0.003
HAS_COMPILER = any(shutil.which(name) for name in ("g++", "c++", "clang++"))
PROGRAMS: dict[str, tuple[str, ...]] = {
    "plain": ("convolutional.py",),
    "plain, 2 workers": ("convolutional.py", "--workers", "2"),
    "plain, 4 batches a step": ("convolutional.py", "--accumulate", "4"),
    "plain, bfloat16 autocast": ("convolutional.py", "--bfloat16"),
    "LSTM": ("language.py", "lstm"),
    "transformer": ("language.py", "transformer"),
    "instrumented": ("instrumented.py",),
    "torch.compile, aot_eager": ("compiled.py", "--backend", "aot_eager"),
    **({"torch.compile, inductor": ("compiled.py",)} if HAS_COMPILER else {}),
    "Hugging Face, GPT-2": ("huggingface.py", "gpt2"),
    "Hugging Face, BERT, 2 workers": ("huggingface.py", "bert", "--workers", "2"),
    "Lightning": ("lightning_fit.py",),
    "Lightning, 2 workers": ("lightning_fit.py", "--workers", "2"),
}
METHOD = (
    "`benchmarks/phases.py`: each program of `benchmarks/frameworks` runs unchanged under `profd run` at 100 Hz, which "
    "tells the shares of the phases and the steps; and once more with its own phases timed, by functions of torch and "
    "the frameworks that are wrapped for it (`phasehooks.py`), under profd again. Distance is the total variation, in "
    "points, between profd and the program's own times: of the same run, and of the two runs. A thousand samples leave "
    "two or three by chance. Shares are in percent of the time after startup, of the unchanged run / by the program's "
    "own times; phases below 0.3 % everywhere have no column. A program is told right where *other* is below 10 % and "
    "the distance in the same run is below 5 points. Steps are those of `profd summary --json`. One torch thread; "
    "{versions}."
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
        return cls({name: seconds / whole_s for name, seconds in after.items()}, spent_s.get(STARTUP, 0.0))

    def __getitem__(self, phase: str) -> float:
        return self.of_phase.get(phase, 0.0)

    def distance(self, other: Shares) -> float:
        """Return the total variation of the two, 0 to 1."""
        return sum(abs(self[name] - other[name]) for name in {*self.of_phase, *other.of_phase}) / 2


class Judged(NamedTuple):
    """A program: profd's shares of the unchanged run and of the timed one, the program's own of the latter, steps."""

    told: Shares
    told_of_timed: Shares
    true: Shares
    steps: Steps
    true_steps: int
    true_s: float

    @property
    def is_right(self) -> bool:
        """Whether little is called other, and what is called anything else is that."""
        return self.told[OTHER] < MOST_OTHER and self.told_of_timed.distance(self.true) < LARGEST_DISTANCE


def judge(environment: Environment, words: Sequence[str], kept: Path) -> Judged:
    """Run a program unchanged and timed, both under profd."""
    program = [str(HERE / "frameworks" / words[0]), *words[1:]]
    unchanged, timed, diary = (kept / name for name in ("unchanged.profd", "timed.profd", "diary"))
    kept.mkdir(parents=True)
    output = run(unchanged, [environment.python, *program])
    run(timed, [environment.python, str(HERE / "phasetruth.py"), str(diary), str(time.time_ns()), *program])
    told, steps = read_run(unchanged)
    told_of_timed, _ = read_run(timed)
    return Judged(told, told_of_timed, read_diary(diary), steps, *last_line(output))


def run(run_file: Path, words: Sequence[str]) -> str:
    """Record a program, with one torch thread and a compiler that has cached nothing; return its output."""
    profd = [sys.executable, "-m", "profd", "run", "--headless", "--quiet", "-o", str(run_file), "--"]
    with tempfile.TemporaryDirectory() as folder:
        given = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": folder, "PROFD_HOME": folder}
        done = subprocess.run([*profd, *words], env={**os.environ, **given}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def last_line(output: str) -> tuple[int, float]:
    """Return the steps and the seconds that a program says at its end."""
    words = output.split()[-4:]
    return int(words[1]), float(words[3])


def read_run(run_file: Path) -> tuple[Shares, Steps]:
    """Return what profd tells of a run."""
    with RunReader(run_file) as reader:
        summary = summarize(reader)
    return Shares.of({name: share * summary.duration_s for name, share in summary.phases.items()}), summary.steps


def read_diary(diary: Path) -> Shares:
    """Return what a program tells of itself; a line of its diary says from when on it was in a phase."""
    changes = [line.split(" ", 1) for line in diary.read_text().splitlines()]
    spent_s: defaultdict[str, float] = defaultdict(float)
    for (from_ns, phase), (to_ns, _) in itertools.pairwise(changes):
        spent_s[phase] += (int(to_ns) - int(from_ns)) / SECOND_NS
    return Shares.of(spent_s)


def shares_table(judged: Mapping[str, Judged]) -> list[str]:
    """Return the shares, a row a program."""
    shown = [phase.name for phase in PHASES if phase.name != STARTUP and is_shown(phase.name, judged)]
    head = ["program", *shown, "distance", "of two runs", "startup, s", ""]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, one in judged.items():
        cells = [
            name,
            *(f"{100 * one.told[phase]:.1f} / {100 * one.true[phase]:.1f}" for phase in shown),
            f"{100 * one.told_of_timed.distance(one.true):.1f}",
            f"{100 * one.told.distance(one.true):.1f}",
            f"{one.told.startup_s:.1f} / {one.true.startup_s:.1f}",
            "right" if one.is_right else "**wrong**",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def is_shown(phase: str, judged: Mapping[str, Judged]) -> bool:
    """Say whether a phase has a column: *other* always, else one that any program spends time in."""
    return phase == OTHER or any(max(one.told[phase], one.true[phase]) >= LEAST_SHOWN for one in judged.values())


def steps_table(judged: Mapping[str, Judged]) -> list[str]:
    """Return the steps, a row a program."""
    rows = [
        "| program | steps made | profd counts | a second | profd says | its source |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for name, one in judged.items():
        steps = one.steps
        count = "unknown" if steps.count is None else f"{steps.count} ± {steps.count_error}"
        pace = "unknown" if steps.per_s is None else f"{steps.per_s:.2f} ± {steps.per_s_error or 0:.2f}"
        made_per_s = one.true_steps / one.true_s
        rows.append(f"| {name} | {one.true_steps} | {count} | {made_per_s:.2f} | {pace} | {steps.source or 'none'} |")
    return rows


def main() -> None:
    """Judge all programs, print the tables and write them down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=Path(platformdirs.user_cache_dir("profd")) / "benchmarks")
    parser.add_argument("--keep", type=Path, help="a folder for the run files and diaries")
    parser.add_argument("--dry-run", action="store_true", help="print only")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", default=list(PROGRAMS), help="; ".join(PROGRAMS))
    options = parser.parse_args()
    environment = make_environment(options.cache)
    judged: dict[str, Judged] = {}
    with tempfile.TemporaryDirectory() as folder:
        kept = options.keep or Path(folder)
        for name in options.programs:
            judged[name] = judge(environment, PROGRAMS[name], kept / name.replace(", ", "-").replace(" ", "-"))
            print(*shares_table({name: judged[name]}), *steps_table({name: judged[name]}), "", sep="\n", flush=True)
    lines = [*shares_table(judged), "", *steps_table(judged)]
    print("\n".join(lines))
    if not options.dry_run:
        write_section("Phases of training loops", METHOD.format(versions=environment.versions()), lines)
    sys.exit(not all(one.is_right for one in judged.values()))


if __name__ == "__main__":
    main()
