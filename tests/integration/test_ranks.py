"""Jobs of several ranks by the real torchrun: the one that is slow is named, and in a healthy one none is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TARGET = str(Path(__file__).parents[2] / "target" / "ddp_mlp.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", TARGET]
PROFD = [sys.executable, "-m", "profd"]
# The four ranks share two cores with all that records them: with the default budget there would be few samples.
BUDGET = ("--budget", "80")

pytestmark = [pytest.mark.timeout(400), pytest.mark.requires("torch")]


def environment(home: Path) -> dict[str, str]:
    """Return an environment in which torch keeps to one thread a rank."""
    return {**os.environ, "PROFD_HOME": str(home), "OMP_NUM_THREADS": "1"}


def summary(home: Path) -> dict[str, Any]:
    """Return what is told of the latest run."""
    words = [*PROFD, "summary", "latest", "--json"]
    told = subprocess.run(words, env=environment(home), capture_output=True, text=True, timeout=120, check=True)
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def launched(home: Path, *words: str) -> dict[str, Any]:
    """Return what is told of a job that profd launched."""
    ran = subprocess.run(
        [*PROFD, "run", "--headless", *BUDGET, "--", *TORCHRUN, "--seconds", "15", *words],
        env=environment(home), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return summary(home)


def straggler(told: dict[str, Any]) -> dict[str, Any] | None:
    """Return the finding that names a rank; None where there is none."""
    return next((one for one in told["findings"] if one["rule"] == "straggler"), None)


@pytest.mark.parametrize(("kind", "function"), [("data", "Records.__getitem__"), ("disk", "read_block")])
def test_the_slow_rank_is_named_with_the_function_that_makes_it_late(kind: str, function: str, tmp_path: Path) -> None:
    told = launched(tmp_path, "--slow", kind, "--slow-rank", "2")
    found = straggler(told)

    assert found is not None, told["ranks"]
    assert found["severity"] in ("warning", "critical")
    assert "rank 2 makes the others wait" in found["title"]
    assert found["evidence"]["line"]["function"] == function
    assert "it waits for storage" in found["cause"]
    assert [row["rank"] for row in told["ranks"] if row["is_late"]] == [2]
    waits = {row["rank"]: row["waiting_share"] for row in told["ranks"]}
    assert waits.pop(2) == 0
    assert all(share > 0.2 for share in waits.values()), waits


def test_a_healthy_job_has_no_straggler(tmp_path: Path) -> None:
    told = launched(tmp_path)

    assert straggler(told) is None
    assert [row["rank"] for row in told["ranks"]] == [0, 1, 2, 3]
    assert not any(row["is_late"] for row in told["ranks"])


def test_attaching_to_torchrun_names_its_ranks_and_the_slow_one(tmp_path: Path) -> None:
    words = [*TORCHRUN, "--seconds", "120", "--slow", "compute", "--slow-rank", "1"]
    with subprocess.Popen(words, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline() == "training on 4 ranks\n"
            subprocess.run(
                [*PROFD, "attach", str(job.pid), "--headless", *BUDGET, "--duration", "15"],
                env=environment(tmp_path), capture_output=True, timeout=120, check=True,
            )  # fmt: skip
        finally:
            job.terminate()
            job.communicate(timeout=60)
    told = summary(tmp_path)
    found = straggler(told)

    assert sorted(row["rank"] for row in told["processes"] if row["role"] == "main") == [0, 1, 2, 3]
    assert found is not None, told["ranks"]
    assert "rank 1 makes the others wait" in found["title"]
    assert found["evidence"]["line"]["function"] == "normalize"
