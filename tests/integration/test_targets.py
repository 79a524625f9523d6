"""The bundled training scripts do what they say, on their own, and as `profd demo` runs one of
them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
from support.folders import PROGRAMS, TARGET
from support.waiting import DEADLINE_S

RESNET = ("cifar_resnet18", "--device", "cpu", "--batch-size", "4", "--workers", "0")
DEMO = ("--steps", "3", "--batch-size", "4", "--workers", "1", "--device=cpu")
RUNS = [
    (*RESNET, "--epochs", "2"),
    (*RESNET, "--epochs", "4", "--steps", "5"),
    (*RESNET, "--data", "/nowhere"),
    ("simple_net", "--device", "cpu", "--steps", "1000", "--batch-size", "8"),
    ("simple_net", "--steps", "0"),
]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP's threads spin while they wait: beside other tests, one is quicker than several."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def run_all() -> list[dict[str, str]]:
    command = [sys.executable, str(PROGRAMS / "targets.py"), str(TARGET), json.dumps(RUNS)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=2 * DEADLINE_S)
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def bars(narration: str) -> list[str]:
    """Return where each progress bar of a training ended, as ``train done/total``."""
    seen = re.findall(
        r"^(train|test): +\d+%.*? (\d+)/(\d+) ", narration.replace("\r", "\n"), re.MULTILINE
    )
    ends = [f"{name} {done}/{total}" for name, done, total in seen if done == total]
    # A bar may show its end twice: when it is reached, and when the bar is closed.
    return [end for end, _ in groupby(ends) if end.startswith("train")]


@pytest.mark.requires("torch", "torchvision")
def test_scripts_train_for_as_long_as_they_are_asked_to_and_say_what_they_lack() -> None:
    epochs, steps, without_data, net, no_steps = run_all()

    for ended, trained in (
        (epochs, ["train 3/3", "train 3/3"]),
        (steps, ["train 3/3", "train 2/2"]),
    ):
        assert ended["error"] == ""
        assert [line.split(":")[0] for line in ended["stdout"].splitlines()] == [
            "epoch 1",
            "epoch 2",
        ]
        epoch = r"epoch \d: train loss \d\.\d{3}, test loss \d\.\d{3}, accuracy \d+\.\d%\n"
        assert re.fullmatch(f"({epoch}){{2}}", ended["stdout"])
        assert bars(ended["stderr"]) == trained
    assert "not found" in without_data["error"]
    assert re.fullmatch(
        r"step 1000: loss \d\.\d{4}\nfinished 1000 steps with loss \d\.\d{4}\n", net["stdout"]
    )
    assert (no_steps["error"], no_steps["stdout"]) == ("2", "")
    assert "--steps must be at least 1" in no_steps["stderr"]


@pytest.mark.requires("torch", "torchvision")
def test_demo_trains_sums_up_and_writes_the_report(profd_home: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "profd", "demo", "--headless", "--", *DEMO],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"epoch 1: train loss .*\n", ended.stdout)
    report = Path(ended.stderr.splitlines()[-1].removeprefix("report: "))
    assert report.with_suffix(".profd") in (profd_home / "runs").glob("*.profd")
    assert "cifar_resnet18" in report.read_text()
    assert "cifar_resnet18.py ended with 0" in ended.stderr


def test_demo_without_torch_names_the_line_for_which_its_training_waits() -> None:
    command = [sys.executable, "-m", "profd", "demo", "digits", "--headless"]
    ended = subprocess.run(
        [*command, "--", "--steps=100"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("right\n") == 5
    line = 1 + TARGET.joinpath("digits.py").read_text().split("batches.get()")[0].count("\n")
    assert "the main thread waits for data" in ended.stderr
    assert f"(digits.py:{line})" in ended.stderr
