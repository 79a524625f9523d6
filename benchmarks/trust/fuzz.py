"""Gives everything that reads what others wrote hostile bytes: nothing but a clear error may come
of it, and soon.

    python benchmarks/run.py fuzz [--cases N] [--jobs N] [--seed N] [SUBJECT ...]

Subjects are run files (their bytes, the values in their tables, their schemas), what processes
choose (their maps, command lines and variables), recordings and dumps of py-spy, Kineto's traces
and datagrams, and control messages; of those that are JSON the bytes, and the values. Each run file
goes through every one of its readers: one case of it is as many readings.

Says on stderr, as a JSON line for every thousand cases, how far it is; prints for each subject how
its readings ended, and the slowest; last, the most memory of any of its processes. Subjects get the
cases that they are owed where ``--cases`` does not say otherwise, and a section of
``docs/measurements.md`` is written once all of its subjects did. Ends with 1 where a reading broke
out of the errors that are meant for it, took more than five seconds of CPU, or memory passed 400
MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from common.measurements import write_section
from trust.fuzzsubjects import Subject, subjects

SLOWEST_S, LONGEST_S = 5.0, 60.0
"""Of CPU, and by the clock: what else runs on the machine slows a reading, too."""
MOST_BYTES = 400 << 20
PART = 1000
OTHERS = 100_000
"""Cases of each subject that reads one stream of bytes."""

RUN_FILES = {"run-bytes": 4_000, "run-values": 4_000, "run-schemas": 20_000}
"""Cases of run files: each goes through all of their readers."""


class Finding(NamedTuple):
    """A case that broke out; ``words`` is its traceback, or how long it took."""

    subject: str
    case: int
    words: str


class Outcome(NamedTuple):
    """How the readings of one subject ended: names of errors, ``read`` where it was read.

    The slowest in seconds of CPU.
    """

    endings: Counter[str]
    slowest_s: float
    findings: list[Finding]
    peak_bytes: int = 0

    def with_more(self, other: Outcome) -> Outcome:
        """Return both together."""
        return Outcome(
            self.endings + other.endings,
            max(self.slowest_s, other.slowest_s),
            self.findings + other.findings,
            max(self.peak_bytes, other.peak_bytes),
        )


def fuzz(name: str, subject: Subject, cases: Iterable[int], seed: int) -> Outcome:
    """Give a subject cases by their numbers, one after the other in the main thread."""
    signal.signal(signal.SIGALRM, _break_off)
    endings: Counter[str] = Counter()
    slowest_s, findings = 0.0, []
    for case in cases:
        chance = random.Random(f"{name} {seed} {case}")
        data = subject.change(chance.choice(subject.seeds), chance)
        for reading in subject.readings(data, chance):
            begun_s = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
            try:
                reading()
                endings["read"] += 1
            except subject.errors as error:
                endings[type(error).__name__] += 1
            except Exception:  # noqa: BLE001  whatever breaks out is what is looked for
                endings["BROKE OUT"] += 1
                findings.append(Finding(name, case, traceback.format_exc()))
            signal.setitimer(signal.ITIMER_REAL, 0)
            took_s = time.process_time() - begun_s
            slowest_s = max(slowest_s, took_s)
            if took_s > SLOWEST_S:
                findings.append(Finding(name, case, f"took {took_s:.1f} s of CPU"))
    return Outcome(
        endings, slowest_s, findings, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    )


def _break_off(number: int, frame: FrameType | None) -> None:
    """Break off a case that takes too long."""
    raise TimeoutError("it did not come to an end")


def fuzz_part(name: str, cases: range, seed: int) -> Outcome:
    """Give a subject some cases, in a process of a pool."""
    # In memory: a case writes a hundred files, which takes as long on a disk as to read them.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        return fuzz(name, subjects(Path(folder))[name], cases, seed)


def fuzz_in_parts(pool: ProcessPoolExecutor, name: str, cases: int, seed: int) -> Outcome:
    """Give a subject so many cases, all processes of a pool at once, and say how far it is."""
    parts = [range(first, min(first + PART, cases)) for first in range(0, cases, PART)]
    whole = Outcome(Counter(), 0.0, [])
    for part, outcome in zip(
        parts, pool.map(fuzz_part, [name] * len(parts), parts, [seed] * len(parts)), strict=True
    ):
        whole = whole.with_more(outcome)
        done = {
            "subject": name,
            "cases": part.stop,
            "of": cases,
            "readings": whole.endings.total(),
            "findings": len(whole.findings),
        }
        print(json.dumps(done), file=sys.stderr, flush=True)
    return whole


def in_words(endings: Counter[str]) -> str:
    """Return how readings ended, the most frequent first."""
    return ", ".join(f"{count:,} {ending}" for ending, count in endings.most_common())


def report(name: str, cases: int, outcome: Outcome) -> Iterator[str]:
    """Yield what is said of a subject."""
    yield (
        f"{name:16} {cases:>8,} cases, {outcome.endings.total():,} readings: "
        f"{in_words(outcome.endings)}; slowest {outcome.slowest_s:.2f} s"
    )
    alike = {one.words.strip().splitlines()[-1][:60]: one for one in reversed(outcome.findings)}
    for first in alike.values():
        yield f"  case {first.case}: {first.words}"


def main() -> int:
    """Fuzz the subjects named, or all; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="SUBJECT")
    parser.add_argument(
        "--cases", type=int, help="cases of each subject [100000, of run files fewer]"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at once [one a core]"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        known = tuple(subjects(Path(folder)))
    found: dict[str, Outcome] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in options.names or known:
            cases = options.cases or RUN_FILES.get(name, OTHERS)
            found[name] = fuzz_in_parts(pool, name, cases, options.seed)
            print("\n".join(report(name, cases, found[name])), flush=True)
    print(memory(found.values()))
    if not options.cases:
        write_sections(known, found)
    return int(any(one.findings or one.peak_bytes > MOST_BYTES for one in found.values()))


def memory(outcomes: Iterable[Outcome]) -> str:
    """Return the most memory of any process."""
    return f"Memory: at most {max(outcome.peak_bytes for outcome in outcomes) / 1e6:.0f} MB."


def write_sections(known: Iterable[str], found: Mapping[str, Outcome]) -> None:
    """Write each section whose subjects were all given their cases."""
    others = [name for name in known if name not in RUN_FILES]
    sections = (
        ("Hostile run files", list(RUN_FILES), "Each file goes through all that read one: "
                                               "`summary`, `ls`, `report`, "
         "`diff`, all exports, the fleet's, the exporter and the dashboard."),
        ("Hostile bytes", others, "All else that profd reads."),
    )  # fmt: skip
    for title, names, words in sections:
        if all(name in found for name in names):
            write_section(title, "`benchmarks/trust/fuzz.py`: what profd reads, changed by chance. "
                                 f"{words} `read` is what could be read after all; the others are "
                                 "errors that say what is wrong. None may end in another way, or "
                                 "after 5 s of CPU, or above 400 MB.",
                          [*table(names, found), "", memory(found[name] for name in names)])  # fmt: skip


def table(names: Iterable[str], found: Mapping[str, Outcome]) -> Iterator[str]:
    """Yield the rows of some subjects."""
    yield "| subject | cases | readings | how they ended | slowest |"
    yield "|---|---:|---:|---|---:|"
    for name in names:
        cases, outcome = RUN_FILES.get(name, OTHERS), found[name]
        yield (
            f"| {name} | {cases:,} | {outcome.endings.total():,} | {in_words(outcome.endings)} | "
            f"{outcome.slowest_s:.2f} s |"
        )
