"""A real job on three nodes whose clocks differ, each recorded by a profd of its own, read as one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clockshift import shift_clock
from netlab import Lab, built_lab

TARGET = str(Path(__file__).parents[2] / "target" / "ddp_mlp.py")
PROFD = [sys.executable, "-m", "profd"]
NODES, SLOW_RANK = 3, 1
AHEAD_NS = (0, 1_700_000_003, -1_900_000_007)
MILLISECOND_NS = 1_000_000
WITHIN_NS = 20 * MILLISECOND_NS

pytestmark = [pytest.mark.timeout(240), pytest.mark.requires("torch")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the run files of the job, by clocks that are up to 3.6 s apart; files of another run lie beside them."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("job")
    with built_lab(NODES) as lab:
        started = [start(lab, node, home, folder) for node in range(NODES)]
        for process in started:
            told, _ = process.communicate(timeout=150)
            assert process.returncode == 0, told
    for node in range(NODES):
        shift_clock(folder / f"node{node}.profd", AHEAD_NS[node])
    return folder


def start(lab: Lab, node: int, home: Path, folder: Path) -> subprocess.Popen[str]:
    """Start profd with a rank below it on a node; gloo is told the interface, as the host's name has no address."""
    environment = {
        **os.environ,
        "PROFD_HOME": str(home / str(node)),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "RANK": str(node),
        "LOCAL_RANK": "0",
        "GROUP_RANK": str(node),
        "WORLD_SIZE": str(NODES),
        "MASTER_ADDR": lab.address(0),
        "MASTER_PORT": "29511",
    }
    # The nodes share two cores with all that records them: with the default budget there would be few samples.
    run = [*PROFD, "run", "--headless", "--quiet", "--budget", "80", "-o", str(folder / f"node{node}.profd"), "--"]
    # Steps that are longer than joining may be off by are told from their neighbors, even as they are.
    slow = ["--slow", "compute", "--slower", "3", "--slow-rank", str(SLOW_RANK)]
    target = [sys.executable, TARGET, "--seconds", "20", *slow]
    return subprocess.Popen(
        lab.command(node, [*run, *target]),
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def profd(*words: str) -> str:
    """Return what profd prints."""
    ran = subprocess.run([*PROFD, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(profd("summary", str(folder), "--json"))
    return found


def test_clocks_are_aligned_within_20_ms(summary: dict[str, Any]) -> None:
    nodes = summary["nodes"]

    assert [node["host"] for node in nodes] == ["node0", "node1", "node2"]
    assert [node["source"] for node in nodes[1:]] == ["collectives", "collectives"]
    for node, ahead_ns in zip(nodes, AHEAD_NS, strict=True):
        assert abs(node["offset_ns"] - ahead_ns) < WITHIN_NS, nodes
        assert node["error_ns"] < WITHIN_NS, nodes


def test_the_slow_rank_is_named_with_its_node_and_its_function(summary: dict[str, Any]) -> None:
    found = [one for one in summary["findings"] if one["rule"] == "straggler"]

    assert found, summary["ranks"]
    assert "rank 1 on node1 makes the others wait" in found[0]["title"]
    assert found[0]["evidence"]["line"]["function"] == "normalize"
    assert [(row["rank"], row["host"]) for row in summary["ranks"]] == [(0, "node0"), (1, "node1"), (2, "node2")]
    assert [row["rank"] for row in summary["ranks"] if row["is_late"]] == [SLOW_RANK]


def test_the_report_is_of_all_nodes(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.html"

    assert profd("report", str(folder), "-o", str(path)).strip() == str(path)
    page = path.read_text()
    for told in ("rank 1 on node1", "node2", 'href="#rank=0"', "by collectives"):
        assert told in page


def test_each_node_is_offered_to_be_viewed(folder: Path) -> None:
    ran = subprocess.run(
        [*PROFD, "view", str(folder)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )

    assert [line.split()[:3] for line in ran.stdout.splitlines()[1:]] == [
        [str(n), f"node{n}", str(n)] for n in range(3)
    ]
    assert ran.returncode == 2
    assert "3 nodes of one job" in ran.stderr
