"""`profd demo`, shortened to a few steps: the script's own output and code, a summary, a report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S

FEW = ("--steps", "3", "--batch-size", "4", "--workers", "1", "--device=cpu")


@pytest.mark.requires("torch", "torchvision")
def test_demo_trains_sums_up_and_writes_the_report(profd_home: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "profd", "demo", "--headless", "--", *FEW],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
        # OpenMP's threads spin while they wait: beside other tests, one is quicker than several.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"epoch 1: train loss .*\n", ended.stdout)
    report = Path(ended.stderr.splitlines()[-1].removeprefix("report: "))
    assert report.with_suffix(".profd") in (profd_home / "runs").glob("*.profd")
    assert "cifar_resnet18" in report.read_text()
    assert "cifar_resnet18.py ended with 0" in ended.stderr
