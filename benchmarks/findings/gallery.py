"""Whether profd finds the cause that is planted in each script of ``target/gallery``, and none in
its healthy twin.

Run on a quiet machine: ``python benchmarks/run.py gallery [--runs 5] [--seconds 60] [--keep FOLDER]
[SCRIPT ...]``, about 3 minutes a script and run; writes its section of ``docs/measurements.md``.
Each run is one of the script and one of its twin, so that the gain of the fix can be held against
the bound that was stated before. What is kept is not recorded anew: the whole can be made in parts,
and rules that have changed are tried on it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common.measurements import write_section
from support.folders import TARGET

from profd.daemon.units import plural

GALLERY = TARGET / "gallery"
PLANTED = {
    "load_in_process": "input-bound-in-process",
    "slow_store": "input-bound-saturated",
    "worker_restarts": "input-bound-starting",
    "values_each_step": "synchronization",
    "checkpoint_often": "checkpoint-stalls",
    "log_each_step": "logging-stalls",
    "evaluate_often": "evaluation-share",
    "python_loop": "hot-function",
    "collect_garbage": "garbage-collection",
    "python_thread": "interpreter-lock",
    "fresh_memory": "allocator-churn",
    "one_thread": "idle-cores",
    "tensor_by_tensor": "unfused-optimizer",
    "small_batches": "small-batches",
    "recompile": "compile-share",
    "slow_start": "slow-start",
    "slow_down": "slow-down",
    "too_many_threads": "oversubscription",
    "keep_batches": "memory-growth",
}
# What comes on slowly, and is no finding of a shorter run.
LEAST_S = {"slow_down": 120.0}
NOTHING = "nothing"
_PACE = re.compile(r"steps at ([\d.]+)/s")


class Outcome(NamedTuple):
    """One run: the rule that came first, above info or not at all, its bound and share, and the
    steps a second.
    """

    first: str
    bound: float | None
    per_s: float
    share: float | None = None


class Pair(NamedTuple):
    """A script and its twin, run one after the other."""

    planted: Outcome
    fixed: Outcome

    @property
    def gain(self) -> float:
        """By how many times the fix made the steps faster."""
        return self.fixed.per_s / self.planted.per_s

    @property
    def rest(self) -> float | None:
        """How long a step takes after the fix, as a part of what it took before without the cause.

        None: unknown.

        Below 1 the fix speeds up what it does not touch, or the machine was faster that minute: no
        share tells.
        """
        share, bound = self.planted.share, self.planted.bound
        if share is None or bound is None or bound * (1 - share) < 1:  # the share of something else
            return None
        return 1 / self.gain / (1 - share)


def run(script: str, seconds: float, kept: Path, *, fixed: bool) -> Outcome:
    """Profile a script, unless the folder ``kept`` has a recording of it, and ask what is found."""
    seconds = max(seconds, LEAST_S.get(script, 0.0))
    environment = {**os.environ, "PROFD_HOME": str(kept / "home")}
    profd, run_file, printed = [sys.executable, "-m", "profd"], kept / "run.profd", kept / "printed"
    if not printed.exists():
        kept.mkdir(parents=True, exist_ok=True)
        run_file.unlink(missing_ok=True)
        words = [
            sys.executable,
            str(GALLERY / f"{script}.py"),
            "--seconds",
            str(seconds),
            *(["--fixed"] * fixed),
        ]
        ran = subprocess.run(
            [*profd, "run", "--headless", "--quiet", "-o", str(run_file), "--", *words],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
        )  # fmt: skip
        printed.write_text(ran.stdout)
    done = subprocess.run(
        [*profd, "summary", str(run_file), "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    pace = _PACE.search(printed.read_text())
    assert pace is not None, printed
    return outcome(json.loads(done.stdout)["findings"], float(pace[1]))


def outcome(findings: Sequence[dict[str, object]], per_s: float) -> Outcome:
    """Return what a user would see first."""
    above = [one for one in findings if one["severity"] != "info"]
    if not above:
        return Outcome(NOTHING, None, per_s)
    bound, evidence = above[0]["gain_bound"], above[0]["evidence"]
    assert isinstance(evidence, dict)
    shares = [one["value"] for one in evidence["measures"][:1] if one["unit"] == "share"]
    return Outcome(
        str(above[0]["rule"]),
        bound if isinstance(bound, float) else None,
        per_s,
        shares[0] if shares else None,
    )


def row(script: str, pairs: Sequence[Pair]) -> str:
    """Return the row of a script: how often it was right, and the gain beside its bound."""
    right = sum(pair.planted.first == PLANTED[script] for pair in pairs)
    quiet = sum(pair.fixed.first == NOTHING for pair in pairs)
    bounds = [(pair.gain, pair.planted.bound) for pair in pairs if pair.planted.bound is not None]
    within = sum(gain <= bound for gain, bound in bounds)
    gain = statistics.median(pair.gain for pair in pairs)
    stated_bound = f"{statistics.median(bound for _, bound in bounds):.2f}" if bounds else "none"
    near = sum(bound <= 2 * gain for gain, bound in bounds)
    held = [f"{within} of {len(bounds)}", f"{near} of {len(bounds)}"] if bounds else ["", ""]
    rests = [pair.rest for pair in pairs if pair.rest is not None]
    held.append(f"{statistics.median(rests):.2f}" if rests and bounds else "")
    cells = [
        f"{right} of {len(pairs)}",
        f"{quiet} of {len(pairs)}",
        f"{gain:.2f}",
        stated_bound,
        *held,
    ]
    return f"| `{script}` | {PLANTED[script]} | {' | '.join(cells)} |"


def confusion(found: dict[str, Sequence[Pair]]) -> list[str]:
    """Return the matrix: a row for each planted cause, and one for all twins, a column for what
    came first.
    """
    counted = {
        PLANTED[script]: Counter(pair.planted.first for pair in pairs)
        for script, pairs in found.items()
    }
    counted["(healthy twins)"] = Counter(
        pair.fixed.first for pairs in found.values() for pair in pairs
    )
    columns = [
        rule
        for rule in (*PLANTED.values(), NOTHING)
        if any(counts[rule] for counts in counted.values())
    ]
    columns += sorted({rule for counts in counted.values() for rule in counts} - set(columns))
    lines = [f"| planted | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for planted, counts in counted.items():
        lines.append(f"| {planted} | {' | '.join(str(counts[rule] or '') for rule in columns)} |")
    return lines


def main() -> None:
    """Run the scripts, print the tables and write them down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--title", default="Diagnosis", help="the section to write")
    parser.add_argument(
        "--keep", type=Path, help="a folder of recordings, which are made where they are not there"
    )
    parser.add_argument(
        "scripts", nargs="*", default=list(PLANTED), help=f"of {', '.join(PLANTED)}"
    )
    options = parser.parse_args()
    found: dict[str, Sequence[Pair]] = {}
    columns = (
        "found first | twin healthy | gain of the fix | bound | gain within bound | bound within "
        "twice the gain"
    )
    columns += " | rest of a step"
    lines = [f"| script | planted | {columns} |", "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        for script in options.scripts:
            pairs = [
                Pair(
                    run(script, options.seconds, folder / f"{script}-{number}", fixed=False),
                    run(script, options.seconds, folder / f"{script}-{number}-fixed", fixed=True),
                )
                for number in range(options.runs)
            ]
            found[script] = pairs
            lines.append(row(script, pairs))
            print(lines[-1], flush=True)
    matrix = confusion(found)
    print("\n".join(["", *matrix]))
    scripts = "each script" if options.scripts == list(PLANTED) else "these scripts"
    write_section(
        options.title,
        f"`benchmarks/findings/gallery.py`: {plural(options.runs, 'run')} of {options.seconds:.0f} s "
        f"of {scripts} of `target/gallery` and of its twin without the bottleneck. Found "
        "first: the planted cause is the first finding. Twin healthy: no finding above info. "
        "Gain and bound are medians, as times the steps a second. Rest of a step: what a step "
        "took in the twin, over what it took in the script without the cause's share.",
        [*lines, "", "What was found first, by what was planted:", "", *matrix],
    )
