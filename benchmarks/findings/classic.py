"""Whether profd names the improvements of the classic case one after the other, each as the one
before was applied.

The case is ResNet-18 on images of CIFAR-10's shape (``target/cifar_resnet18.py``). Run on a quiet
machine: ``python benchmarks/run.py classic [--images 9600] [--gpu]``, about 5 minutes on two cores;
writes its section of ``docs/measurements.md``. With ``--gpu`` it begins on the CPU beside an idle
GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from common.measurements import write_section
from findings.gallery import NOTHING, outcome
from support.folders import TARGET

SCRIPT = TARGET / "cifar_resnet18.py"
SMALL, LARGE = 32, 256
_WORKERS = re.compile(r"num_workers=(\d+)")


class Stage(NamedTuple):
    """The script with what was improved so far, and the rule that is to come first."""

    name: str
    rule: str
    device: str = "cpu"
    has_workers: bool = False
    batch: int = SMALL


class Result(NamedTuple):
    """What came first in a stage, its bound, the workers that it advises, and the images that were
    trained a second.
    """

    rule: str
    bound: float | None
    workers: int | None
    images_per_s: float


ON_CPU = (
    Stage("as it is", "input-bound-in-process"),
    Stage("with workers", "small-batches", has_workers=True),
    Stage(f"in batches of {LARGE}", NOTHING, has_workers=True, batch=LARGE),
)
ON_GPU = (
    Stage("as it is", "gpu-unused"),
    *(
        stage._replace(device="cuda")
        for stage in (ON_CPU[0]._replace(name="on the GPU"), *ON_CPU[1:])
    ),
)


def words_of(stage: Stage, workers: int, images: int) -> list[str]:
    """Return the arguments of the script in a stage, which trains on so many images in each."""
    steps = max(images // stage.batch, 20)
    arguments = {
        "steps": steps,
        "batch-size": stage.batch,
        "workers": workers if stage.has_workers else 0,
    }
    return [f"--{name}={value}" for name, value in arguments.items()] + [f"--device={stage.device}"]


def result_of(summary: dict[str, object], batch: int) -> Result:
    """Return what a summary tells first, and how fast it was."""
    findings, steps = summary["findings"], summary["steps"]
    assert isinstance(findings, list)
    assert isinstance(steps, dict)
    first = outcome(findings, float(steps["per_s"]))
    advised = _WORKERS.search(str(findings[0]["remedy"])) if findings else None
    return Result(
        first.first, first.bound, int(advised[1]) if advised else None, first.per_s * batch
    )


def run(stage: Stage, workers: int, images: int) -> Result:
    """Profile a stage, and ask what was found."""
    with tempfile.TemporaryDirectory() as home:
        environment, profd = {**os.environ, "PROFD_HOME": home}, [sys.executable, "-m", "profd"]
        seen = ["--all-gpus"] if stage.rule == "gpu-unused" else []
        script = [sys.executable, str(SCRIPT), *words_of(stage, workers, images)]
        subprocess.run(
            [*profd, "run", "--headless", "--quiet", *seen, "--", *script],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        done = subprocess.run(
            [*profd, "summary", "latest", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return result_of(json.loads(done.stdout), stage.batch)


def rows(stages: Sequence[Stage], results: Sequence[Result]) -> list[str]:
    """Return a row for each stage: what came first, its bound, and what applying it brought."""
    lines = []
    for number, (stage, result) in enumerate(zip(stages, results, strict=True)):
        right = "yes" if result.rule == stage.rule else f"no: {stage.rule}"
        bound = "" if result.bound is None else f"{result.bound:.2f}"
        is_last = number + 1 == len(results)
        gain = "" if is_last else f"{results[number + 1].images_per_s / result.images_per_s:.2f}"
        lines.append(
            f"| {stage.name} | {result.images_per_s:.0f} | {result.rule} | {right} | {bound} | "
            f"{gain} |"
        )
    return lines


def main() -> None:
    """Run the stages one after the other, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=9600, help="images to train on in each stage")
    parser.add_argument("--gpu", action="store_true", help="begin beside a GPU that is not used")
    options = parser.parse_args()
    stages, results, workers = ON_GPU if options.gpu else ON_CPU, [], 1
    for stage in stages:
        results.append(run(stage, workers, options.images))
        workers = results[-1].workers or workers
    lines = [
        "| stage | images/s | found first | as expected | bound | gain of what it advises |",
        "|---|---:|---|---|---:|---:|",
        *rows(stages, results),
    ]
    print("\n".join(lines))
    place = "on a GPU" if options.gpu else "on the CPU"
    write_section(
        f"Diagnosis: the classic case {place}",
        f"`benchmarks/findings/classic.py`: ResNet-18 on images of CIFAR-10's shape, {options.images} "
        "of them in each stage, each with what was found first in the one before. Bound and "
        "gain as times the images a second.",
        lines,
    )
