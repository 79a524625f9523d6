"""Whether the slow rank of a job is named, how soon, and none in a healthy one.

Run on a quiet machine: ``python benchmarks/run.py ranks``, about half an hour; ``--quick`` takes
five and writes nothing. Four gloo ranks by torchrun, ``target/ddp_mlp.py``, recorded with the
default budget; writes its section of ``docs/measurements.md``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common.measurements import write_section
from support.folders import TARGET

from profd.daemon.analyze.phases import PhaseIndex, training_range
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import Finding
from profd.daemon.findings.ranks import straggler
from profd.daemon.store.reader import RunReader

TRAINING = TARGET / "ddp_mlp.py"
RANKS, SLOW_RANK = 4, 2
FUNCTIONS = {
    "data": "Records.__getitem__",
    "compute": "normalize",
    "disk": "read_block",
    "batch": "train",
}
HEALTHY = "nothing"
_LOOKED_EVERY_S = 5


class Verdict(NamedTuple):
    """What is found of one run: the rank, its function, its surplus, and how long after the first
    step that was sure.

    ``rank`` is None where no rank is named at the end; ``was_wrong`` where another than the slow
    one ever was.
    """

    rank: int | None
    function: str
    surplus: float
    after_s: float
    was_wrong: bool


def run(kind: str, seconds: float, home: Path) -> Verdict:
    """Profile a job with a planted cause, and look what is found as it goes on."""
    environment = {**os.environ, "PROFD_HOME": str(home), "OMP_NUM_THREADS": "1"}
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(RANKS),
    ]
    words = [str(TRAINING), "--seconds", str(seconds), "--slow-rank", str(SLOW_RANK)]
    words += [] if kind == HEALTHY else ["--slow", kind]
    command = [
        sys.executable,
        "-m",
        "profd",
        "run",
        "--headless",
        "--quiet",
        "--name",
        "ranks",
        "--",
    ]
    subprocess.run([*command, *torchrun, *words], env=environment, check=True, capture_output=True)
    newest = max((home / "runs").glob("*.profd"), key=lambda path: path.stat().st_mtime)
    with RunReader(newest) as reader:
        return judge(reader, kind)


def judge(reader: RunReader, kind: str) -> Verdict:
    """Return what profd says by the end, and whether it was wrong at any moment before."""
    phases = PhaseIndex(reader)
    trained = training_range(reader, MAIN_THREADS, phases)
    assert trained is not None, "no step was seen"
    moments = range(
        _LOOKED_EVERY_S,
        int((trained[1] - trained[0]) / SECOND_NS) + _LOOKED_EVERY_S,
        _LOOKED_EVERY_S,
    )
    found = [
        (after_s, _find(reader, trained[0] + after_s * SECOND_NS, phases)) for after_s in moments
    ]
    named = [(after_s, one) for after_s, one in found if one is not None]
    right = {None} if kind == HEALTHY else {None, SLOW_RANK}
    was_wrong = any(one.evidence.selection.rank not in right for _, one in named)
    last = found[-1][1]
    if last is None:
        return Verdict(None, "", 0.0, float("inf"), was_wrong)
    line = last.evidence.line
    function = line.function if line else ""
    return Verdict(
        last.evidence.selection.rank,
        function,
        last.evidence.measures[0].value,
        named[0][0],
        was_wrong,
    )


def _find(reader: RunReader, to_ns: int, phases: PhaseIndex) -> Finding | None:
    """Return the straggler that was known at a moment."""
    return straggler(FindingContext(reader, Selection(to_ns=to_ns, main_threads=True), phases))


def row(kind: str, found: Sequence[Verdict]) -> str:
    """Return the row of a planted cause."""
    named = [one for one in found if one.rank == SLOW_RANK]
    right = sum(one.function == FUNCTIONS.get(kind) for one in named)
    wrong = sum(one.was_wrong for one in found)
    cells = [
        f"{len(named)} of {len(found)}",
        f"{right} of {len(found)}",
        f"{wrong} of {len(found)}",
    ]
    if named:
        surplus = f"{100 * statistics.median(one.surplus for one in named):.0f} %"
        cells += [surplus, f"{statistics.median(one.after_s for one in named):.0f} s"]
        cells.append(f"{max(one.after_s for one in named):.0f} s")
    else:
        cells += [""] * 3
    return f"| {kind} | {' | '.join(cells)} |"


def main() -> None:
    """Run the jobs, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="one run of each cause, of 30 s; nothing is written"
    )
    parser.add_argument("--runs", type=int, default=3, help="of each cause (default: 3)")
    parser.add_argument("--healthy", type=int, default=10, help="of the healthy job (default: 10)")
    parser.add_argument(
        "--seconds", type=float, default=60, help="how long each trains (default: 60)"
    )
    parser.add_argument(
        "kinds",
        nargs="*",
        default=[*FUNCTIONS, HEALTHY],
        help=f"of {', '.join(FUNCTIONS)}, {HEALTHY}",
    )
    options = parser.parse_args()
    runs, healthy, seconds = (
        (1, 1, 30.0) if options.quick else (options.runs, options.healthy, options.seconds)
    )
    head = (
        "| slow | rank named | function named | another rank blamed | surplus | named after | at "
        "the latest |"
    )
    lines = [head, "|---|---:|---:|---:|---:|---:|---:|"]
    print("\n".join(lines), flush=True)
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as home:
            found = [
                run(kind, seconds, Path(home)) for _ in range(healthy if kind == HEALTHY else runs)
            ]
        lines.append(row(kind, found))
        print(lines[-1], flush=True)
    if not options.quick:
        write_section(
            "Ranks",
            f"`benchmarks/findings/ranks.py`: {RANKS} gloo ranks by torchrun, `target/ddp_mlp.py`, "
            f"{seconds:.0f} s of training a run with the default budget; rank {SLOW_RANK} is "
            f"slow. Another rank blamed: at any of the moments, {_LOOKED_EVERY_S} s apart, at "
            "which was looked. Named after: from the first step. Surplus and times are medians "
            "over runs.",
            lines,
        )
