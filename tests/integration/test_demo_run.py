"""`profd demo`, shortened to a few steps: the script's own output and code, a summary, a report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.requires("torch", "torchvision"), pytest.mark.timeout(300)]


def run_demo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "profd", "demo", "--headless", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        # OpenMP's threads spin while they wait: beside other tests, one is quicker than several.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_demo_trains_sums_up_and_writes_the_report(profd_home: Path) -> None:
    ended = run_demo("--", "--steps", "30", "--workers", "1", "--device", "cpu")
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"epoch 1: train loss .*\n", ended.stdout)
    run_file, report = profd_home / "runs" / "*.profd", ended.stderr.splitlines()[-1].removeprefix("report: ")
    assert Path(report).with_suffix(".profd") in run_file.parent.glob(run_file.name)
    assert "cifar_resnet18" in Path(report).read_text()
    summary = ended.stderr.rpartition("epoch")[2]
    assert "cifar_resnet18.py ended with 0" in summary
    assert "loss.backward()" in summary


def test_demo_ends_with_the_exit_code_of_its_script() -> None:
    ended = run_demo("simple_net", "--", "--steps", "0")
    assert ended.returncode == 2
    assert "--steps must be at least 1" in ended.stderr
