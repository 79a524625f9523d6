"""Whether profd finds what is wrong with training programs of other people's kind: those of
``benchmarks/findings/corpus``.

Run on a quiet machine: ``python benchmarks/run.py diagnosis [--seconds 45] [--keep FOLDER] [PROGRAM
...]``, two minutes a program; writes its section of ``docs/measurements.md``. Each program runs
with its cause, and then without it. An attach to the first has to name a line that the program
marks; the second is a healthy program, and gives the gain of the remedy. What is kept is not
recorded anew: rules that have changed are tried on it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
from common.environment import make_environment
from common.measurements import write_section
from common.proportions import most

from profd.daemon.clock import SECOND_NS
from profd.daemon.units import percent

CORPUS = Path(__file__).parent / "corpus" / "programs"
PACKAGES = ("keras", "optree", "lightgbm")
HEALTHY = "Nothing is planted"
MARK = "# planted"
OTHER = "other"
READY_S = 120.0
WARM_S = 5.0
NEAR = 0.04
"""By how much a share may differ from that of the program's own clock, to be right."""
MOST_WORDS = 30


class Run(NamedTuple):
    """A program that was attached to: its findings as shown, steps a second, and the planted share
    by its clock.

    ``planted`` is None where the clock times no part of a step. ``other`` is the share of the time
    that has neither a phase nor a name in the summary: a kind of calls, or a function of the
    script's own. ``load`` is that of the machine in the minute before the end.
    """

    findings: Sequence[dict[str, Any]]
    per_s: float
    planted: float | None
    other: float
    load: float


class Program(NamedTuple):
    """A program of the corpus with its run, and that of its mended twin.

    A healthy one has a single run.
    """

    path: Path
    run: Run
    mended: Run | None

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.path.stem

    @property
    def rank(self) -> int | None:
        """Which of the findings is the first that names a marked line, from 1; None: none does."""
        marked = marked_lines(self.path)
        for number, finding in enumerate(self.run.findings, start=1):
            line = finding["evidence"]["line"]
            if line and Path(line["file"]).name == self.path.name and line["line"] in marked:
                return number
        return None

    @property
    def right(self) -> dict[str, Any] | None:
        """The finding that names the cause."""
        return None if self.rank is None else self.run.findings[self.rank - 1]

    @property
    def share_error(self) -> float | None:
        """How far the stated share is from that of the program's clock.

        None where one of them is not there.
        """
        measures = self.right["evidence"]["measures"] if self.right else []
        shares = [one["value"] for one in measures if one["unit"] == "share"]
        return abs(shares[0] - self.run.planted) if shares and self.run.planted else None

    @property
    def gain(self) -> float | None:
        """By how many times steps are faster in the mended twin."""
        return self.mended.per_s / self.run.per_s if self.mended else None


def marked_lines(path: Path) -> frozenset[int]:
    """Return the numbers of the lines that a program marks as its cause."""
    return frozenset(
        number for number, line in enumerate(path.read_text().splitlines(), start=1) if MARK in line
    )


class Kept(NamedTuple):
    """Where a recording of a program is kept: its run file, its diary, when the attach began and
    ended, in ns, and the machine's load.
    """

    folder: Path

    @property
    def run_file(self) -> Path:
        return self.folder / "run.profd"

    @property
    def diary(self) -> Path:
        return self.folder / "diary"

    @property
    def times(self) -> Path:
        return self.folder / "times"


@contextlib.contextmanager
def running(
    python: str, path: Path, diary: Path, *, is_mended: bool
) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the end of the block."""
    words = [python, str(path), str(diary), *(["--mended"] if is_mended else [])]
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        try:
            yield program
        finally:
            program.terminate()
            program.wait()
            # Workers that hang outlive it, and hold what it wrote to.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.communicate()


def _until_it_trains(program: subprocess.Popen[str], path: Path, diary: Path) -> None:
    assert program.stderr is not None
    end = time.monotonic() + READY_S
    while not (diary.exists() and diary.stat().st_size):
        if program.poll() is not None or time.monotonic() > end:
            program.kill()
            sys.exit(f"{path.name} did not begin to train: {program.stderr.read()[-500:]}")
        time.sleep(0.1)


def record(python: str, path: Path, kept: Kept, seconds: float, *, is_mended: bool) -> None:
    """Attach to a program, or to its mended twin."""
    kept.folder.mkdir(parents=True, exist_ok=True)
    for file in (kept.diary, kept.run_file):
        file.unlink(missing_ok=True)
    with running(python, path, kept.diary, is_mended=is_mended) as program:
        _until_it_trains(program, path, kept.diary)
        time.sleep(WARM_S)
        began_ns = time.time_ns()
        words = [sys.executable, "-m", "profd", "attach", str(program.pid), "--headless"]
        words += ["--duration", str(seconds), "-o", str(kept.run_file)]
        attach = subprocess.run(words, env=_environment(kept), stdout=subprocess.DEVNULL)
        if attach.returncode:
            sys.exit(f"profd attach failed for {path.name}")
        kept.times.write_text(f"{began_ns} {time.time_ns()} {os.getloadavg()[0]:.1f}")


def _environment(kept: Kept) -> dict[str, str]:
    return {**os.environ, "PROFD_HOME": str(kept.folder / "home")}


def judge(kept: Kept) -> Run:
    """Return what the summary says of a kept recording, by the rules in force, and what the
    program's diary does.
    """
    with contextlib.closing(sqlite3.connect(kept.run_file)) as connection, connection:
        # Those in the file are by the rules of its time.
        connection.execute("DELETE FROM meta WHERE name = 'findings_made_by'")
    asked = [sys.executable, "-m", "profd", "summary", str(kept.run_file), "--json"]
    done = subprocess.run(
        asked, env=_environment(kept), stdout=subprocess.PIPE, text=True, check=True
    )
    said = json.loads(done.stdout)
    text = kept.diary.read_text()
    rows = [tuple(map(int, line.split())) for line in text[: text.rfind("\n") + 1].splitlines()]
    times = [row[0] for row in rows]
    began, ended, load = kept.times.read_text().split()
    began_ns, ended_ns = int(began), int(ended)
    first, last = (
        rows[bisect_left(times, began_ns)],
        rows[min(bisect_left(times, ended_ns), len(rows) - 1)],
    )
    took_ns = last[0] - first[0]
    planted_ns = last[2] - first[2]
    return Run(
        said["findings"],
        (last[1] - first[1]) * SECOND_NS / took_ns,
        planted_ns / took_ns if planted_ns else None,
        said["phases"].get(OTHER, 0.0) - sum(said["rest"].get(OTHER, {}).values()),
        float(load),
    )


def first_sentence(finding: dict[str, Any]) -> bool:
    """Whether a finding's sentence is short enough, and names its file and line."""
    line = finding["evidence"]["line"]
    place = f"{Path(line['file']).name}:{line['line']}" if line else "no line"
    return place in finding["title"] and len(finding["title"].split()) <= MOST_WORDS


def table(programs: Sequence[Program]) -> list[str]:
    """Return a line for each program, and what holds of all of them."""
    columns = (
        "first finding | cause is | share, by its clock | stated, off by | gain, measured | "
        "bound | other | load"
    )
    heads = "|---|---|---|---:|---:|---:|---:|---:|---:|---|"
    lines = [f"| program | {columns} | mended twin |", heads]
    for one in programs:
        first = one.run.findings[0] if one.run.findings else None
        bound = one.right["gain_bound"] if one.right else None
        place = (
            f"{first['rule']}, line {(first['evidence']['line'] or {}).get('line', '-')}"
            if first
            else "none"
        )
        cells = [
            place,
            _named(one),
            percent(one.run.planted) if one.run.planted else "",
            percent(one.share_error) if one.share_error is not None else "",
            f"{one.gain:.2f}" if one.gain else "",
            f"{bound:.2f}" if bound else "",
            percent(one.run.other),
            " and ".join(f"{run.load:.0f}" for run in filter(None, (one.run, one.mended))),
            "" if one.mended is None else ", ".join(_warnings(one.mended)) or "healthy",
        ]
        lines.append(f"| {one.name} | {' | '.join(cells)} |")
    return [*lines, "", *_holds(programs)]


def _named(program: Program) -> str:
    if program.mended is None:
        return ""
    if program.right is None:
        return "not found"
    return f"finding {program.rank}" + (", a remark" if program.right["severity"] == "info" else "")


def _warnings(run: Run) -> list[str]:
    return [one["rule"] for one in run.findings if one["severity"] != "info"]


def _holds(programs: Sequence[Program]) -> list[str]:
    planted = [one for one in programs if one.mended is not None]
    healthy = [one.mended or one.run for one in programs]
    errors = [one.share_error for one in planted if one.share_error is not None]
    bounds = [
        (one.gain, one.right["gain_bound"])
        for one in planted
        if one.gain and one.right and one.right["gain_bound"]
    ]
    firsts = [one.run.findings[0] for one in planted if one.run.findings]
    others = [one.run.other for one in programs]
    counted = (
        ("first finding is the planted cause", sum(one.rank == 1 for one in planted), len(planted)),
        ("among the first two", sum(one.rank in (1, 2) for one in planted), len(planted)),
        (
            "first, and a warning",
            sum(one.rank == 1 and bool(_warnings(one.run)) for one in planted),
            len(planted),
        ),
        ("healthy without a warning", sum(not _warnings(run) for run in healthy), len(healthy)),
        (
            f"share within {NEAR * 100:.0f} points",
            sum(error <= NEAR for error in errors),
            len(errors),
        ),
        ("gain within the bound", sum(gain <= bound for gain, bound in bounds), len(bounds)),
        (
            "bound within twice the gain",
            sum(bound <= 2 * gain for gain, bound in bounds),
            len(bounds),
        ),
        (
            f"first sentence with its line, ≤ {MOST_WORDS} words",
            sum(map(first_sentence, firsts)),
            len(firsts),
        ),
    )
    return [
        "| | programs | not so, of all at most |",
        "|---|---:|---:|",
        *(
            f"| {what} | {right} of {all_} | ≤ {most(all_ - right, all_):.0%} |"
            for what, right, all_ in counted
            if all_
        ),
        f"| *other*, median and most | {percent(statistics.median(others))}, "
        f"{percent(max(others))} | |",
    ]


def main() -> None:
    """Run the programs, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument(
        "--keep", type=Path, help="a folder of recordings, which are made where they are not there"
    )
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    paths = sorted(CORPUS.glob("*.py"))
    unknown = set(options.programs) - {path.stem for path in paths}
    if unknown:
        sys.exit(f"there are no programs {', '.join(sorted(unknown))}")
    cache = Path(platformdirs.user_cache_dir("profd")) / "benchmarks"
    python = make_environment(cache, "corpus", PACKAGES).python
    programs = []
    with tempfile.TemporaryDirectory() as name:
        for path in paths:
            if options.programs and path.stem not in options.programs:
                continue
            is_healthy = HEALTHY in path.read_text()
            folders = [path.stem] if is_healthy else [path.stem, f"{path.stem}-mended"]
            kept = [Kept((options.keep or Path(name)) / folder) for folder in folders]
            for number, one in enumerate(kept):
                if not one.times.exists():
                    record(python, path, one, options.seconds, is_mended=number == 1)
            runs = [judge(one) for one in kept]
            programs.append(Program(path, runs[0], None if is_healthy else runs[1]))
            first = programs[-1].run.findings[:1]
            print(
                f"{programs[-1].name}: {first[0]['title'] if first else 'no finding'}", flush=True
            )
    lines = table(programs)
    print("\n".join(lines))
    if not options.programs:
        method = (
            f"`benchmarks/findings/diagnosis.py`: `profd attach` for {options.seconds:g} s to each program "
            "of `benchmarks/findings/corpus` and to its twin without the planted cause, which runs "
            "afterwards. Load: that of the machine at the end of each. Cause: the first finding, "
            "remarks included and behind all warnings, that names a line which the program marks. Share: the part of the time "
            "that the cause takes, by the program's own clock. Gain: steps a second of the twin "
            "over those of the program. Not so, of all at most: the exact bound of the binomial "
            "distribution, at 95 %. Other: the time with neither a phase nor a name in the "
            "summary."
        )
        write_section("Diagnosis of programs of other people's kind", method, lines)
