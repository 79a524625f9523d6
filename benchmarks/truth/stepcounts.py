"""How true steps are: programs with loops of many forms, recorded by real sessions, against their
own diaries.

``python benchmarks/run.py stepcounts [--pythons 3.8,3.13] [--programs while_loop,timm_train]
[--seconds 30] [--at-once 8] [--rounds 1] [--busy] [--frameworks]``, about 20 minutes; writes its
section of ``docs/measurements.md``, another one for ``--busy``. The programs are those of
``loads/steploops``, ``loads/publicloops`` and ``tests/programs/steploops``, under each Python of
this machine that profd reads, with a stand-in for torch; ``--frameworks`` adds programs of
``benchmarks/truth/frameworks`` with the real libraries under this Python, best with ``--at-once
1``. Ends with 1 where a run failed, a stated error did not hold, or a program without steps got a
number.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import platformdirs
from common.environment import make_environment
from common.load import LOADS, busy
from common.measurements import write_section
from common.proportions import most
from support.folders import BENCHMARKS, PROGRAMS
from support.interpreters import VERSIONS, find_python
from support.standins import site_packages
from truth.steptruth import NEAR, Diary, Reported, judge

FOLDERS = (PROGRAMS / "steploops", LOADS / "steploops", LOADS / "publicloops")
NOT_PROGRAMS = ("diary",)
FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "Hugging Face Trainer": ("huggingface.py", "gpt2", "--steps", "1000000"),
    "Lightning": ("lightning_fit.py", "--epochs", "10000"),
    "Accelerate": ("accelerated.py", "--steps", "1000000"),
    "torch.compile": ("compiled.py", "--backend", "aot_eager", "--steps", "1000000"),
    "plain torch": ("convolutional.py", "--epochs", "10000"),
}
"""Endless, as far as a recording goes."""
RATE_LIMIT = 0.005
DELAY_S = (0.3, 4.0)
READY_S = 180.0


class Job(NamedTuple):
    """A program under a Python: the words that start it, in which DIARY stands for its diary."""

    program: str
    version: str
    words: tuple[str, ...]


class Result(NamedTuple):
    """What came of a job; ``failed`` says why nothing did."""

    job: Job
    reported: Reported | None = None
    trains: bool = True
    failed: str = ""

    @property
    def is_near(self) -> bool:
        """Whether all counts were right to one step."""
        return (
            self.reported is not None
            and self.reported.difference is not None
            and self.reported.difference <= NEAR
        )

    @property
    def is_paced(self) -> bool:
        """Whether the rate was right."""
        return self.reported is not None and self.reported.rate_error <= RATE_LIMIT

    @property
    def is_wrong(self) -> bool:
        """Whether something was reported that is not so."""
        return self.reported is not None and (bool(self.reported.broken) or not self.trains)


def jobs(options: argparse.Namespace) -> list[Job]:
    """Return what to run, in a random order, so that those which run at one time differ."""
    paths = [path for folder in FOLDERS for path in sorted(folder.glob("*.py"))]
    programs = {path.stem: path for path in paths if path.stem not in NOT_PROGRAMS}
    wanted = options.programs or [*programs, *(FRAMEWORKS if options.frameworks else ())]
    unknown = set(wanted) - programs.keys() - FRAMEWORKS.keys()
    if unknown:
        sys.exit(f"there are no programs {', '.join(sorted(unknown))}")
    found = [
        Job(name, version, (executable, str(programs[name]), "DIARY"))
        for version in options.pythons
        if (executable := find_python(version))
        for name in wanted
        if name in programs
    ]
    frameworks = [name for name in wanted if name in FRAMEWORKS]
    if frameworks:
        executable = make_environment(options.cache).python
        launcher = str(BENCHMARKS / "truth" / "stepdiary.py")
        for name in frameworks:
            file, *arguments = FRAMEWORKS[name]
            words = (
                executable,
                launcher,
                "DIARY",
                str(BENCHMARKS / "truth" / "frameworks" / file),
                *arguments,
            )
            found.append(Job(name, "this", words))
    found *= options.rounds
    random.shuffle(found)
    return found


class Failed(Exception):
    """A program did not do what it is there for; the text says what."""


@contextlib.contextmanager
def training(job: Job, folder: Path, packages: Path) -> Iterator[int]:
    """Run a program and give its PID after some random time of its training.

    Its diary is complete at the end.

    Raises Failed where it does not begin to train, or has ended by itself.
    """
    said = folder / "output"
    given = {"OMP_NUM_THREADS": "1"}
    if job.program not in FRAMEWORKS:
        given |= {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [str(folder / "diary") if word == "DIARY" else word for word in job.words]
    with (
        said.open("w") as output,
        subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**_plain_environment(), **given},
        ) as program,
    ):
        try:
            if not _is_ready(program, said):
                raise Failed(f"did not begin: {said.read_text()[-500:]}")
            time.sleep(random.uniform(*DELAY_S))
            yield program.pid
            if program.poll() is not None:
                raise Failed(f"ended by itself: {said.read_text()[-500:]}")
        finally:
            program.terminate()
            _end(program)


def measure(job: Job, folder: Path, packages: Path, seconds: float) -> Result:
    """Run a program, attach to it after a while, and compare when the recording has ended."""
    run_file = folder / "run.profd"
    try:
        with training(job, folder, packages) as pid:
            attach = [sys.executable, "-m", "profd", "attach", str(pid), "--headless"]
            done = subprocess.run(
                [*attach, "--duration", str(seconds), "-o", str(run_file)],
                env={**os.environ, "PROFD_HOME": str(folder / "home")}, capture_output=True, text=True,
            )  # fmt: skip
    except Failed as failure:
        return Result(job, failed=str(failure))
    if done.returncode:
        return Result(
            job, failed=f"profd attach ended with {done.returncode}: {done.stderr[-500:]}"
        )
    kept = Diary(folder / "diary")
    return Result(job, judge(run_file, kept), trains=not kept.is_empty)


def _plain_environment() -> dict[str, str]:
    """Return the environment without what makes Python another one."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }


def _is_ready(program: subprocess.Popen[bytes], said: Path) -> bool:
    """Wait until a program says that its training begins; False where it has ended before."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end and program.poll() is None:
        if "ready\n" in said.read_text(errors="replace"):
            return True
        time.sleep(0.1)
    return False


def _end(program: subprocess.Popen[bytes]) -> None:
    """Wait until a program has written its diary."""
    try:
        program.wait(10)
    except subprocess.TimeoutExpired:
        program.kill()


def table(results: Sequence[Result]) -> list[str]:
    """Return a line for each program, and what holds of all of them."""
    by_program: defaultdict[str, list[Result]] = defaultdict(list)
    for result in sorted(results, key=lambda one: (not one.trains, one.job.program)):
        by_program[result.job.program].append(result)
    return [
        "| program | source named | runs | told | within 1 | worst difference | own number | rate "
        "within 0.5 % | worst rate error | stated error held |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(_row(name, found) for name, found in by_program.items()),
        "",
        *_bounds(results),
    ]


def _row(name: str, found: Sequence[Result]) -> str:
    reported = [result.reported for result in found if result.reported is not None]
    if not any(result.trains for result in found):
        return (
            f"| {name} | {_sources(reported)} | {len(found)} | {len(reported)}, of none "
            "| | | | | | |"
        )
    differences = [one.difference for one in reported if one.difference is not None]
    numbers = [one.number_error for one in reported if one.number_error is not None]
    rates = [one.rate_error for one in reported]
    cells = (
        name,
        _sources(reported),
        len(found),
        len(reported),
        sum(result.is_near for result in found),
        f"{max(differences):.0f}" if differences else "",
        f"{sum(one <= NEAR for one in numbers)} of {len(numbers)}" if numbers else "",
        sum(result.is_paced for result in found),
        f"{max(rates):.1%}" if rates else "",
        f"{sum(not one.broken for one in reported)} of {len(reported)}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _sources(reported: Sequence[Reported]) -> str:
    """Return what was counted, the most frequent first.

    Batches are named where a step has several.
    """
    words = Counter(
        one.source if one.unit == "steps" else f"{one.source}, batches" for one in reported
    )
    return "; ".join(
        f"{text} ({times})" if len(words) > 1 else text for text, times in words.most_common()
    )


def _bounds(results: Sequence[Result]) -> list[str]:
    """Return how often something was not so, and of how many of all at most, in one of twenty such
    measurements.
    """
    training = [result for result in results if result.trains]
    reported = [result for result in training if result.reported is not None]
    others = [result for result in results if not result.trains]
    counted = (
        ("steps not told", sum(result.reported is None for result in training), len(training)),
        (
            "a count not within one step",
            sum(not result.is_near for result in reported),
            len(reported),
        ),
        ("a rate not within 0.5 %", sum(not result.is_paced for result in reported), len(reported)),
        ("a stated error not held", sum(result.is_wrong for result in reported), len(reported)),
        ("steps told where there are none", sum(result.is_wrong for result in others), len(others)),
    )
    return [
        "| what went wrong | runs | of all, at most |",
        "|---|---:|---:|",
        *(
            f"| {what} | {times} of {all_} | ≤ {most(times, all_):.1%} |"
            for what, times, all_ in counted
            if all_
        ),
    ]


def complaints(results: Sequence[Result]) -> list[str]:
    """Return what was reported and is not so, and what failed, a line each."""
    lines = []
    for result in results:
        name = f"{result.job.program} under {result.job.version}"
        if result.failed:
            lines.append(f"{name}: {result.failed}")
        elif result.reported is not None and not result.trains:
            lines.append(
                f"{name}: has no steps, but profd reports those of {result.reported.source}"
            )
        elif result.reported is not None:
            lines += [
                f"{name}: {result.reported.source}: {words}" for words in result.reported.broken
            ]
    return lines


def main() -> None:
    """Run all, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words = lambda text: [word for word in text.split(",") if word]  # noqa: E731
    parser.add_argument("--pythons", type=words, default=list(VERSIONS))
    parser.add_argument("--programs", type=words, default=[])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--busy", action="store_true", help="beside two busy loops")
    parser.add_argument(
        "--frameworks", action="store_true", help="programs with the real libraries, too"
    )
    parser.add_argument(
        "--cache", type=Path, default=platformdirs.user_cache_path("profd-benchmarks")
    )
    options = parser.parse_args()
    wanted = jobs(options)
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(busy(2 if options.busy else 0))
        pool = stack.enter_context(ThreadPoolExecutor(options.at_once))
        packages = site_packages(home)

        def run(numbered: tuple[int, Job]) -> Result:
            number, job = numbered
            folder = home / str(number)
            folder.mkdir()
            return measure(job, folder, packages, options.seconds)

        results = list(pool.map(run, enumerate(wanted)))
    lines = table([result for result in results if not result.failed])
    wrong = complaints(results)
    print("\n".join([*lines, "", *wrong]))
    write_section(
        "Truth of steps on a busy machine" if options.busy else "Truth of steps",
        method(options),
        lines,
    )
    sys.exit(1 if wrong else 0)


def method(options: argparse.Namespace) -> str:
    """Return how it was measured, in words."""
    versions = ", ".join(version for version in options.pythons if find_python(version))
    return (
        f"`benchmarks/truth/stepcounts.py`: each program under Python {versions}, {options.rounds} "
        f"times, `profd attach` for {options.seconds:g} s from a random time on, "
        f"{options.at_once} at once{', beside two busy loops' if options.busy else ''}. A program "
        "keeps a diary of its steps. Worst difference: of the counts since the first one, against "
        "whole steps of the diary. Own number: runs whose counts are within one of what the "
        "script itself calls the step, where that is one running number. Stated error held: of "
        "the counts, of the rate and of the steps of the whole run, all of them; a count may be "
        "one step off, since one is always being made. At most: the exact bound of the binomial "
        "distribution, at 95 %."
    )
