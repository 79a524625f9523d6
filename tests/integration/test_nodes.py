"""A real job on two nodes that hangs, each recorded by a profd of its own: read as one run, it names
the rank that all wait for, its node, and what it waits for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.folders import PROGRAMS
from support.launches import PROFD, printed, profd
from support.networknodes import Lab, built_lab
from support.waiting import DEADLINE_S, until

from profd.daemon.errors import ProfdError
from profd.daemon.store.reader import RunReader

NODES = 2
STANDS_AT = ("(late_rank.py:31)", "(late_rank.py:19)")
"""Where the rank of each node stands in the end: in the exchange, and in a wait of its own."""

pytestmark = pytest.mark.requires("torch", "netns")


def start(lab: Lab, node: int, home: Path, folder: Path) -> subprocess.Popen[bytes]:
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
        "MASTER_PORT": "29512",
    }
    # The nodes share a machine with all that records them: with the default budget samples would be
    # long in coming.
    words = [PROFD, "run", "--headless", "--quiet", "--budget", "80", "--hang-after", "4"]
    words += ["-o", str(folder / f"node{node}.profd"), "--"]
    words += [sys.executable, str(PROGRAMS / "hangs/late_rank.py")]
    null = subprocess.DEVNULL
    return subprocess.Popen(
        lab.command(node, words), env=environment, stdin=null, stdout=null, start_new_session=True
    )


def has_hung(file: Path, place: str) -> bool:
    """Say whether a rank hangs there; on a busy machine the wait for imports may be one before."""
    try:
        with RunReader(file) as reader:
            return any(place in hang.text for hang in reader.hangs())
    except ProfdError:
        return False


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the run files of the job."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("job")
    with built_lab(NODES) as lab:
        started = [start(lab, node, home, folder) for node in range(NODES)]
        try:
            files = [folder / f"node{node}.profd" for node in range(NODES)]
            until(lambda: all(map(has_hung, files, STANDS_AT)), "a hang on each node")
        finally:
            for process in started:
                os.killpg(process.pid, 15)
            for process in started:
                process.communicate(timeout=DEADLINE_S)
    return folder


def test_nodes_are_read_as_one_run_that_names_the_late_rank(folder: Path) -> None:
    summary = printed(profd("summary", str(folder), "--json"))
    assert [node.host for node in summary.nodes] == ["node0", "node1"]
    assert summary.nodes[0].offset_ns == 0
    *_, hang = summary.hangs
    assert hang.cause == "collective"
    assert "1 of 2 ranks" in hang.text
    assert hang.text.endswith("; rank 1 is on node1")
    (behind,) = hang.behind
    assert (behind.rank, behind.host) == (1, "node1")
    assert behind.place.endswith("(late_rank.py:19)"), behind
    assert "in the job's store" in behind.state, behind

    page = folder / "job.html"
    assert profd("report", str(folder), "-o", str(page)).stdout.strip() == str(page)
    for text in ("node0", "node1", "rank 1 is on node1"):
        assert text in page.read_text()

    viewed = profd("view", str(folder))
    offered = [line.split()[:3] for line in viewed.stdout.splitlines()[1:]]
    assert offered == [[str(n), f"node{n}", str(n)] for n in range(NODES)]
    assert viewed.returncode == 2
    assert "2 nodes of one job" in viewed.stderr
