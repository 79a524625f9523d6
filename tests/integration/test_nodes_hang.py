"""A job on two nodes that hangs: what they recorded, read as one run, names the rank that all wait
for.
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

NODES, EACH = 2, 2
EXCHANGE = "(late_rank.py:31)"

pytestmark = pytest.mark.requires("torch", "netns")


def start(lab: Lab, node: int, home: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start profd with two ranks below it on a node."""
    environment = {
        **os.environ,
        "PROFD_HOME": str(home / str(node)),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "WORLD_SIZE": str(NODES * EACH),
        "MASTER_ADDR": lab.address(0),
        "MASTER_PORT": "29512",
    }
    rank = f"{sys.executable} {PROGRAMS / 'hangs/late_rank.py'}"
    ranks = " ".join(f"RANK={node * EACH + one} {rank} &" for one in range(EACH))
    words = [PROFD, "run", "--headless", "--quiet", "--budget", "80", "--hang-after", "4"]
    words += ["-o", str(folder / f"node{node}.profd"), "--", "sh", "-c", f"{ranks} wait"]
    null = subprocess.DEVNULL
    return subprocess.Popen(
        lab.command(node, words), env=environment, stdin=null, stdout=null, start_new_session=True
    )


def has_hung(file: Path) -> bool:
    """Say whether the exchange hangs; on a busy machine the wait for imports may be one before."""
    try:
        with RunReader(file) as reader:
            return any(EXCHANGE in hang.text for hang in reader.hangs())
    except ProfdError:
        return False


def test_the_late_rank_is_named_with_its_node_line_and_native_operation(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("job")
    with built_lab(NODES) as lab:
        started = [start(lab, node, home, folder) for node in range(NODES)]
        try:
            files = [folder / f"node{node}.profd" for node in range(NODES)]
            until(lambda: all(map(has_hung, files)), "a hang on each node")
        finally:
            for process in started:
                os.killpg(process.pid, 15)
            for process in started:
                process.communicate(timeout=DEADLINE_S)
    *_, hang = printed(profd("summary", str(folder), "--json")).hangs
    assert hang.cause == "collective"
    assert "3 of 4 ranks wait for that in all_reduce" in hang.text
    assert hang.text.endswith("; rank 3 is on node1")
    (behind,) = hang.behind
    assert (behind.rank, behind.host) == (3, "node1")
    assert behind.place.endswith("(late_rank.py:19)"), behind
    assert "in the job's store" in behind.state, behind
    page = folder / "job.html"
    assert profd("report", str(folder), "-o", str(page)).returncode == 0
    assert "rank 3 is on node1" in page.read_text()
