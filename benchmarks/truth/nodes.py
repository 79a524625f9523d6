"""How near the clocks of three real nodes are brought by what they do together, and whether the
slow rank is named.

Run as root on a quiet machine, with torch: ``python benchmarks/run.py nodes [--runs 10]``,
about five minutes; writes its section of ``docs/measurements.md`` and ends with 1 where a clock is
farther off than promised, or the rank is not named, in any run. The nodes are network namespaces,
each recorded by a profd of its own; their clocks are set apart by seconds afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from common.measurements import write_section
from support.folders import TARGET
from support.networknodes import Lab, built_lab
from support.shiftedclocks import shift_clock

TRAINING = TARGET / "ddp_mlp.py"
PROFD = [sys.executable, "-m", "profd"]
NODES, SLOW_RANK = 3, 1
AHEAD_NS = (0, 1_700_000_003, -1_900_000_007)
LIMIT_MS = 20.0


class Outcome(NamedTuple):
    """What one job came to: how far each clock is off at most, and whether the slow rank alone is
    called late.
    """

    off_ms: float
    is_named: bool

    @property
    def is_good(self) -> bool:
        """Whether it kept to what is promised."""
        return self.off_ms < LIMIT_MS and self.is_named


def start(lab: Lab, node: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start profd with a rank below it on a node.

    Gloo gets the interface, as the host's name has no address.
    """
    environment = {
        **os.environ,
        "PROFD_HOME": str(folder / f"home{node}"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "RANK": str(node),
        "LOCAL_RANK": "0",
        "GROUP_RANK": str(node),
        "WORLD_SIZE": str(NODES),
        "MASTER_ADDR": lab.address(0),
        "MASTER_PORT": "29511",
    }
    # The nodes share one machine with all that records them: with the default budget there would be
    # few samples.
    run = [
        *PROFD,
        "run",
        "--headless",
        "--quiet",
        "--budget",
        "80",
        "-o",
        str(folder / f"node{node}.profd"),
        "--",
    ]
    slow = ["--slow", "compute", "--slower", "3", "--slow-rank", str(SLOW_RANK)]
    words = [*run, sys.executable, str(TRAINING), "--seconds", "20", *slow]
    return subprocess.Popen(
        lab.command(node, words),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def measure() -> Outcome:
    """Run a job, set the clocks of its nodes apart, and see what is made of them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with built_lab(NODES) as lab:
            for process in [start(lab, node, folder) for node in range(NODES)]:
                if process.wait() != 0:
                    sys.exit(f"a rank ended with {process.returncode}")
        for node in range(NODES):
            shift_clock(folder / f"node{node}.profd", AHEAD_NS[node])
        asked = subprocess.run([*PROFD, "summary", name, "--json"], check=True, capture_output=True)
        summary = json.loads(asked.stdout)
    off_ns = [
        abs(node["offset_ns"] - ahead_ns)
        for node, ahead_ns in zip(summary["nodes"], AHEAD_NS, strict=True)
    ]
    late = [row["rank"] for row in summary["ranks"] if row["is_late"]]
    return Outcome(max(off_ns) / 1e6, late == [SLOW_RANK])


def main() -> int:
    """Measure the jobs; returns 1 where one did not keep to what is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    outcomes = [measure() for _ in range(options.runs)]
    good = sum(outcome.is_good for outcome in outcomes)
    # Where all runs are good, this share is too with 95 %: exact for the binomial, as 0.05 = share
    # ** runs.
    at_least = f"{100 * 0.05 ** (1 / len(outcomes)):.0f} %" if good == len(outcomes) else "-"
    farthest_ms = max(outcome.off_ms for outcome in outcomes)
    named = sum(outcome.is_named for outcome in outcomes)
    row = f"| {len(outcomes)} | {farthest_ms:.1f} ms | {named} | {good} | {at_least} |"
    print(row)
    write_section(
        "Clocks of nodes",
        f"`benchmarks/truth/nodes.py`: {NODES} nodes with clocks up to 3.6 s apart, aligned by "
        f"collectives. A run is good where no clock is off by {LIMIT_MS:.0f} ms and the slow "
        "rank alone is called late.",
        [
            "| runs | farthest | rank named | good | true share, 95 % |",
            "|---|---|---|---|---|",
            row,
        ],
    )
    return 0 if good == len(outcomes) else 1
