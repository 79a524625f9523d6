"""A real job on two nodes whose clocks differ, each recorded by a profd of its own, read as one
run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.folders import TARGET
from support.launches import PROFD, printed, profd
from support.networknodes import Lab, built_lab
from support.shiftedclocks import shift_clock
from support.waiting import DEADLINE_S, until

from profd.daemon.errors import ProfdError
from profd.daemon.store.reader import RunReader

TRAINING = str(TARGET / "ddp_mlp.py")
NODES = 2
AHEAD_NS = (0, 1_700_000_003)
SAMPLES = 100
"""Four times what a rank needs to be in the table."""

pytestmark = pytest.mark.requires("torch", "netns")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the run files of the job, by clocks that are 1.7 s apart.

    Files of another run lie beside them.
    """
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("job")
    with built_lab(NODES) as lab:
        started = [start(lab, node, home, folder) for node in range(NODES)]
        files = [folder / f"node{node}.profd" for node in range(NODES)]
        until(lambda: all(trained(file) >= SAMPLES for file in files), "samples of all ranks")
        for process in started:
            process.terminate()
        for process in started:
            process.communicate(timeout=DEADLINE_S)
    for node in range(NODES):
        shift_clock(folder / f"node{node}.profd", AHEAD_NS[node])
    return folder


def start(lab: Lab, node: int, home: Path, folder: Path) -> subprocess.Popen[str]:
    """Start profd with a rank below it on a node.

    Gloo is given the interface, as the host's name has no address.
    """
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
    # The nodes share a machine with all that records them: with the default budget samples would be
    # long in coming.
    run = [
        PROFD,
        "run",
        "--headless",
        "--quiet",
        "--budget",
        "80",
        "-o",
        str(folder / f"node{node}.profd"),
        "--",
    ]
    target = [sys.executable, TRAINING, "--seconds", "3600"]
    return subprocess.Popen(
        lab.command(node, [*run, *target]),
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def trained(file: Path) -> int:
    """Return how many samples a node's run file has of the training loop.

    0 where there is no file yet.
    """
    try:
        with RunReader(file) as reader:
            totals = reader.stack_totals()
            return sum(
                total.samples
                for total in totals
                if any(frame.function == "train" for frame in reader.frames_of(total.stack))
            )
    except ProfdError:
        return 0


def test_nodes_are_read_as_one_run(folder: Path, tmp_path: Path) -> None:
    summary = printed(profd("summary", str(folder), "--json"))
    assert [node.host for node in summary.nodes] == ["node0", "node1"]
    # Whether collectives are seen, and how near they bring the clocks, is a matter of samples:
    # benchmarks/truth/nodes.py.
    assert summary.nodes[0].offset_ns == 0
    assert [(row.rank, row.host) for row in summary.ranks] == [(0, "node0"), (1, "node1")]

    path = tmp_path / "job.html"
    assert profd("report", str(folder), "-o", str(path)).stdout.strip() == str(path)
    page = path.read_text()
    for text in ("node0", "node1", 'href="#rank=0"'):
        assert text in page

    viewed = profd("view", str(folder))
    offered = [line.split()[:3] for line in viewed.stdout.splitlines()[1:]]
    assert offered == [[str(n), f"node{n}", str(n)] for n in range(NODES)]
    assert viewed.returncode == 2
    assert "2 nodes of one job" in viewed.stderr
