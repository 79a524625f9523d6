"""Measures whether a stopped job has its rank, process, operation and line named, and a healthy job
no alarm.

    python benchmarks/collectives.py [--part PART] [--jobs N] [--quick]

Parts: ``gloo`` (real jobs of 2 to 4 ranks, by their stacks alone, 12 minutes), ``simulated`` (2 to
64 ranks on a clock of their own, whose RAS service is the stand-in of ``tests/support/ras.py``,
asked by profd's client over TCP), ``healthy`` (real, 8 minutes), ``client`` (cost, and broken
answers), ``stragglers`` (recorded). Each writes a section of
``docs/measurements.md``, and ends with 1 where something was not so.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gloojobs import LONG_S, Stop, go_on_gloo, stop_gloo
from measurements import write_section
from rasanswers import client_cost, fuzz, fuzz_wire
from simulatedjobs import HEALTHY, go_on_simulated, stop_simulated
from support import jobruns
from support.findingruns import diagnose
from support.ras import RasServer, job_of

from profd.daemon.findings.ranks import straggler

GLOO_KINDS = ("mismatch", "checkpoint", "debugger", "loader", "killed", "skipped")
GLOO_SIZES = (2, 3, 4)
KINDS = ("mismatch", "checkpoint", "debugger", "loader", "killed", "link", "skipped")
SIZES = (2, 4, 8, 16, 32, 64)
HEALTHY_GLOO = ("compile", "evaluation", "uneven", "slow-start", "checkpointing", "none")


def part_stragglers(_: int, *, quick: bool) -> tuple[list[str], bool]:
    """Have ranks of recorded jobs be slow in backward, on GPUs or not, by the readings alone.

    And none.
    """
    chance, named, wrong, blamed = random.Random(4), 0, 0, 0
    runs = 4 if quick else 20
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2 * runs):
            size, has_gpu, is_healthy = chance.choice((2, 3, 4, 8)), number % 2 == 0, number >= runs
            slow = None if is_healthy else chance.randrange(size)
            surplus = chance.uniform(0.15, 0.4)
            ranks = [
                straggling(chance, surplus if rank == slow else 0.0, has_gpu=has_gpu)
                for rank in range(size)
            ]
            devices = [jobruns.gpu_seen(rank) for rank in range(size)] if has_gpu else []
            found = diagnose(
                jobruns.write_job(
                    Path(folder) / f"{number}.profd", *ranks, seconds=60, more=devices
                ),
                straggler,
            )
            rank = found.evidence.selection.rank if found else None
            named += slow is not None and rank == slow
            wrong += slow is not None and rank is not None and rank != slow
            blamed += is_healthy and rank is not None
    lines = [
        "Recorded jobs of 2 to 8 ranks (readings made up: CPU time, or the GPUs' multiprocessors "
        f"at work), one rank slow in backward by 15 to 40 % of a step: named in {named} of "
        f"{runs}, another in {wrong}. Healthy: {runs}, with a rank named: {blamed}."
    ]
    return lines, named == runs and not wrong and not blamed


def straggling(chance: random.Random, surplus: float, *, has_gpu: bool) -> jobruns.Rank:
    """Return a rank that works longer in backward by a share of a step.

    Its readings vary as real ones do.
    """
    forward = 100 + chance.randrange(-8, 9)
    base = 0.42 if has_gpu else 0.35
    values = [min(max(base + surplus + chance.gauss(0, 0.05), 0.0), 1.0) for _ in range(60)]
    work = ((jobruns.LOAD, 100), (jobruns.FORWARD, forward))
    if has_gpu:
        return jobruns.Rank(*work, cores=1.0, active=values)
    return jobruns.Rank(*work, cores=statistics.fmean(values))


def part_gloo(jobs: int, *, quick: bool) -> tuple[list[str], bool]:
    """Plant stops in real jobs."""
    cases = [
        (kind, size) for kind in GLOO_KINDS for size in (GLOO_SIZES[:1] if quick else GLOO_SIZES)
    ]
    with ThreadPoolExecutor(jobs) as pool:
        stops = list(map(show, pool.map(stop_gloo, cases)))
    return table(stops), all(one.is_right for one in stops)


def part_healthy(jobs: int, *, quick: bool) -> tuple[list[str], bool]:
    """Run real jobs that are healthy."""
    cases = list(enumerate(HEALTHY_GLOO * (1 if quick else 2)))
    alarms = 0
    with ThreadPoolExecutor(jobs) as pool:
        for (_, kind), found in zip(cases, pool.map(go_on_gloo, cases), strict=True):
            print(f"{kind}: {'; '.join(found) or 'no alarm'}", flush=True)
            alarms += len(found)
    return [
        f"Healthy gloo jobs of 2 to 4 ranks, slow for {LONG_S:g} s: {len(cases)}, alarms: {alarms}."
    ], alarms == 0


def part_simulated(_: int, *, quick: bool) -> tuple[list[str], bool]:
    """Plant stops in simulated jobs, and run healthy ones."""
    sizes = SIZES[:2] if quick else SIZES
    cases = [(kind, size, seed) for seed, kind in enumerate(KINDS) for size in sizes]
    stops = [
        show(asyncio.run(stop_simulated(kind, size, seed + size))) for kind, size, seed in cases
    ]
    alarms = asked = runs = 0
    for seed in range(16 if quick else 192):
        kind, size = list(HEALTHY)[seed % len(HEALTHY)], SIZES[seed // len(HEALTHY) % len(SIZES)]
        found, questions = asyncio.run(go_on_simulated(kind, size, seed))
        if found:
            print(f"healthy {kind} {size}: {found}", flush=True)
        alarms, asked, runs = alarms + len(found), asked + questions, runs + 1
    lines = [
        *table(stops),
        "",
        f"Healthy simulated jobs: {runs}, alarms: {alarms}; RAS was asked {asked} times in them.",
    ]
    return lines, all(one.is_right for one in stops) and not alarms


def part_client(_: int, *, quick: bool) -> tuple[list[str], bool]:
    """Measure the client's cost, and give it broken answers."""
    cost_s = client_cost()
    taken, refused, longest_s = fuzz(1_000 if quick else 100_000)
    wire_taken, wire_refused, wire_s = fuzz_wire(200 if quick else 5_000)
    lines = [
        f"One question on a job of 64 ranks: {1e3 * cost_s:.2f} ms of CPU time. It is asked in a "
        "hang alone.",
        "",
        f"Broken answers parsed: {taken + refused}, no traceback; {taken} were taken as a status, "
        f"the longest took {1e3 * longest_s:.1f} ms. Over TCP: {wire_taken + wire_refused}, the "
        f"longest {1e3 * wire_s:.1f} ms.",
    ]
    return lines, cost_s <= 0.01


def table(stops: Sequence[Stop]) -> list[str]:
    """Return the rows on planted stops."""
    lines = [
        "| planted | jobs | told right in time | after s, median | slowest |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind in dict.fromkeys(one.kind for one in stops):
        mine = [one for one in stops if one.kind == kind]
        after_s = [one.after_s for one in mine if one.after_s is not None] or [float("nan")]
        right = sum(one.is_right for one in mine)
        lines.append(
            f"| {kind} | {len(mine)} | {right} | {statistics.median(after_s):.1f} | "
            f"{max(after_s):.1f} |"
        )
    return lines


def show(one: Stop) -> Stop:
    """Print what was reported of a stop."""
    print(
        f"{one.kind} {one.size}: {one.after_s or float('nan'):.1f} s {one.wrong or 'right'}: "
        f"{one.text}",
        flush=True,
    )
    return one


PARTS = {
    "gloo": part_gloo,
    "healthy": part_healthy,
    "simulated": part_simulated,
    "client": part_client,
    "stragglers": part_stragglers,
}


def main() -> int:
    """Run the parts, and write their sections; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one")
    parser.add_argument("--jobs", type=int, default=3, help="real jobs at once [3]")
    parser.add_argument("--quick", action="store_true", help="few of each, written nowhere")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        with RasServer([job_of(options.serve)]) as server:
            print(server.port, flush=True)
            signal.pause()
    is_right = True
    with tempfile.TemporaryDirectory() as home:
        os.environ["PROFD_HOME"] = home
        for name in options.part or PARTS:
            lines, held = PARTS[name](options.jobs, quick=options.quick)
            print("\n".join(lines), flush=True)
            is_right = is_right and held
            if not options.quick:
                write_section(
                    f"Collectives: {name}", f"`benchmarks/collectives.py --part {name}`.", lines
                )
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
