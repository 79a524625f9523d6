"""The bundled training scripts do what they say, on their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

TARGET = Path(__file__).parents[2] / "target"

# OpenMP's threads spin while they wait: beside other tests, one is quicker than several.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

pytestmark = [pytest.mark.requires("torch", "torchvision"), pytest.mark.timeout(300)]


def run_target(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TARGET / f"{name}.py"), "--device", "cpu", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=ENVIRONMENT,
    )


def bars(narration: str) -> list[str]:
    """Return where each progress bar ended, as ``name done/total``."""
    seen = re.findall(r"^(train|test): +\d+%.*? (\d+)/(\d+) ", narration, re.MULTILINE)
    return [f"{name} {done}/{total}" for name, done, total in seen if done == total]


def on_tiny_data(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the ResNet on 10 images for training and 2 for evaluation, in place of 50,000 and 10,000."""
    script = TARGET / "cifar_resnet18.py"
    program = (
        "import runpy, sys; from torchvision import datasets; whole = datasets.FakeData\n"
        "datasets.FakeData = lambda size, *rest: whole(size // 5000, *rest)\n"
        f"sys.argv = [{str(script)!r}, '--device', 'cpu', *{list(arguments)!r}]\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False, env=ENVIRONMENT
    )


def test_resnet_trains_for_the_steps_asked_for_then_evaluates_a_fifth_of_them() -> None:
    ended = run_target("cifar_resnet18", "--steps", "10", "--workers", "1", "--batch-size", "2")
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"epoch 1: train loss \d\.\d{3}, test loss \d\.\d{3}, accuracy \d+\.\d%\n", ended.stdout)
    assert sorted(set(bars(ended.stderr))) == ["test 2/2", "train 10/10"]


@pytest.mark.parametrize(
    ("arguments", "trained"),
    [
        (["--epochs", "2"], ["train 3/3", "train 3/3"]),
        (["--epochs", "4", "--steps", "5"], ["train 3/3", "train 2/2"]),
    ],
)
def test_resnet_counts_steps_over_its_epochs(arguments: list[str], trained: list[str]) -> None:
    ended = on_tiny_data("--batch-size", "4", "--workers", "0", *arguments)
    assert ended.returncode == 0, ended.stderr
    assert [line.split(":")[0] for line in ended.stdout.splitlines()] == ["epoch 1", "epoch 2"]
    # A bar may show its end twice: when it is reached, and when the bar is closed.
    assert [ends for ends, _ in groupby(bars(ended.stderr)) if ends.startswith("train")] == trained


def test_resnet_says_which_data_it_lacks(tmp_path: Path) -> None:
    ended = run_target("cifar_resnet18", "--data", str(tmp_path), "--steps", "1")
    assert ended.returncode != 0
    assert "not found" in ended.stderr.splitlines()[-1]


def test_simple_net_takes_the_steps_asked_for() -> None:
    ended = run_target("simple_net", "--steps", "1000", "--batch-size", "8")
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"step 1000: loss \d\.\d{4}\nfinished 1000 steps with loss \d\.\d{4}\n", ended.stdout)
