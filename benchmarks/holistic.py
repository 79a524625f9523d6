"""Holistic Trace Analysis on an exported window and on a trace of torch's own: each call has to
come to the same.

HTA lives in an interpreter of its own, ``--python``: it wants older packages than profd. Most of
its calls are about kernels, and fail on any trace that has none; where there is no GPU, the way in
which they fail is what is compared.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from measurements import write_section

CALLS = Path(__file__).parent / "frameworks" / "hta_calls.py"
OWN = Path(__file__).parent / "loads" / "selfprofiled.py"
TRAINING = Path(__file__).parents[1] / "tests" / "programs" / "seeded.py"
PROFD = [sys.executable, "-m", "profd"]
STEPS = 3
_PATIENCE_S = 120.0


class Reading(msgspec.Struct, frozen=True):
    """What HTA makes of a folder; ``calls`` are the kind of each result, or its error."""

    ranks: list[int]
    iterations: list[int]
    operators: dict[str, int]
    calls: dict[str, str]


def read(python: str, folder: Path) -> Reading:
    """Have HTA read a folder of traces."""
    said = subprocess.run(
        [python, str(CALLS), str(folder)], capture_output=True, check=True, timeout=_PATIENCE_S
    )
    return msgspec.json.decode(said.stdout.splitlines()[-1], type=Reading)


def export_window(folder: Path) -> None:
    """Take a window of a training that knows of no profiler, and export it."""
    run, pipe = folder.with_suffix(".profd"), subprocess.PIPE
    words = [
        *PROFD,
        "run",
        "--headless",
        "--quiet",
        "--torch-window",
        "-o",
        str(run),
        "--",
        sys.executable,
        str(TRAINING),
    ]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as training:
        assert training.stdout is not None
        while training.stdout.readline() != "ready\n":
            pass
        profd("window", str(run), "--steps", str(STEPS))
        training.communicate("\n", timeout=_PATIENCE_S)
    profd("export", str(run), "--format", "tensorboard", "-o", str(folder))


def profd(*words: str) -> None:
    """Run a command of profd."""
    subprocess.run([*PROFD, *words], check=True, capture_output=True, timeout=_PATIENCE_S)


def faults_of(ours: Reading, own: Reading) -> list[str]:
    """Return in what HTA makes less of an exported window than of a trace of torch's own."""
    faults = [
        f"{name}: {ours.calls[name]}, not {said}"
        for name, said in own.calls.items()
        if without_numbers(ours.calls[name]) != without_numbers(said)
    ]
    if ours.ranks != own.ranks:
        faults.append(f"ranks {ours.ranks}, not {own.ranks}")
    if len(ours.iterations) < STEPS - 1:
        faults.append(f"{len(ours.iterations)} iterations of {STEPS} steps")
    if not all(ours.operators.values()):
        faults.append("no operators")
    return faults


def without_numbers(said: str) -> str:
    """Return what a call came to without times and places in the trace, which some errors quote."""
    return re.sub(r"-?\d+(\.\d+)?", "N", said)


def report(ours: Reading, faults: list[str]) -> None:
    """Write the section of the measurements."""
    write_section(
        "Holistic Trace Analysis",
        "`benchmarks/holistic.py`: every call of HTA on `profd export --format tensorboard` of a "
        "window, compared with the same on a trace that torch's profiler wrote itself. Ranks "
        f"{ours.ranks}, iterations {ours.iterations}; {len(ours.calls) - len(faults)} of "
        f"{len(ours.calls)} calls came to the same. Errors are HTA's own on a trace without "
        "kernels.",
        [
            "| call | comes to |",
            "|---|---|",
            *(f"| `{name}` | {said} |" for name, said in ours.calls.items()),
        ],
    )


def main() -> int:
    """Compare; returns 1 where HTA makes less of an exported window."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", required=True, help="an interpreter that has HolisticTraceAnalysis"
    )
    parser.add_argument("--dry", action="store_true", help="write no measurements")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="profd-holistic-") as name:
        folders = Path(name) / "ours", Path(name) / "own"
        export_window(folders[0])
        subprocess.run(
            [sys.executable, str(OWN), str(folders[1])],
            check=True,
            capture_output=True,
            timeout=_PATIENCE_S,
        )
        ours, own = (read(options.python, folder) for folder in folders)
    faults = faults_of(ours, own)
    for call, said in ours.calls.items():
        print(f"{call}: {said}")
    print(
        f"ranks {ours.ranks}, iterations {ours.iterations} (torch's own: {own.iterations}), "
        f"events {ours.operators}"
    )
    print("\n".join(faults) or "the same as on a trace of torch's own")
    if not options.dry:
        report(ours, faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
