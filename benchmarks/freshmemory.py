"""What page faults cost trainings of the corpus, as profd says it on a quiet and on a crowded
machine, and in truth.

Run on a quiet machine: ``python benchmarks/freshmemory.py [--seconds 30] [--print-only] [PROGRAM
...]``, about three minutes a program; writes its section of ``docs/measurements.md``. The truth is
the gain of the remedy that profd names: the steps a second with memory that is kept, over those
without, measured by turns, and with nothing beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import platformdirs
from diagnosis import CORPUS, HEALTHY, Kept, judge, record
from environment import make_environment
from measurements import write_section

from profd.daemon.units import percent

PROGRAMS = ("accelerate_tagger", "diffusers_queue_poll", "ensemble_vmap", "pointnet_clouds")
KEEPS = {"MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_MMAP_THRESHOLD_": "4294967296"}
TURNS = 2
BESIDE = ("quiet", "crowded")
_SPIN = "while True: bytearray(1 << 20)"


class Said(NamedTuple):
    """What profd says of page faults: how grave, and for what share of the time.

    None where it says nothing.
    """

    severity: str
    share: float | None

    def __str__(self) -> str:
        return (
            f"{self.severity}, {percent(self.share)}" if self.share is not None else self.severity
        )


@contextlib.contextmanager
def beside(crowd: str) -> Iterator[None]:
    """Keep all cores busy with other processes, which take memory anew as well, until the end of
    the block.
    """
    count = (os.cpu_count() or 1) if crowd == "crowded" else 0
    spinning = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def said(python: str, path: Path, folder: Path, seconds: float) -> Said:
    """Attach to a program without its planted cause, and return what profd says of its page faults."""
    kept = Kept(folder / "mended")
    runs = [kept] if HEALTHY in path.read_text() else [Kept(folder / "planted"), kept]
    record(python, path, runs, seconds)
    found = [one for one in judge(kept).findings if one["rule"] == "allocator-churn"]
    return (
        Said(found[0]["severity"], found[0]["evidence"]["measures"][0]["value"])
        if found
        else Said("nothing", None)
    )


def steps_a_second(
    python: str, path: Path, folder: Path, seconds: float, settings: dict[str, str]
) -> float:
    """Run a program without its planted cause and without profd, and return its steps a second by
    its diary.
    """
    diary, words = folder / "diary", [] if HEALTHY in path.read_text() else ["--mended"]
    diary.unlink(missing_ok=True)
    with subprocess.Popen(
        [python, str(path), str(diary), *words], env={**os.environ, **settings}
    ) as program:
        while not (diary.exists() and diary.stat().st_size):
            if program.poll() is not None:
                sys.exit(f"{path.name} did not begin to train")
            time.sleep(0.1)
        time.sleep(seconds)
        program.terminate()
    rows = [tuple(map(int, line.split())) for line in diary.read_text().splitlines()[:-1]]
    half = len(rows) // 4  # what comes before is warming up
    return (rows[-1][1] - rows[half][1]) * 1e9 / (rows[-1][0] - rows[half][0])


def gain(python: str, path: Path, folder: Path, seconds: float) -> float:
    """Return by how many times steps are faster where memory is kept, the median of pairs in
    alternating order.
    """
    gains = []
    for turn in range(TURNS):
        order: list[dict[str, str]] = [KEEPS, {}] if turn % 2 else [{}, KEEPS]
        first, second = (
            steps_a_second(python, path, folder, seconds / 2, settings) for settings in order
        )
        gains.append(first / second if turn % 2 else second / first)
    return statistics.median(gains)


def main() -> None:
    """Measure each program, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--print-only", action="store_true")
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    options = parser.parse_args()
    python = make_environment(Path(platformdirs.user_cache_dir("profd")) / "benchmarks").python
    lines = [
        f"| program | {' | '.join(f'said, {one}' for one in BESIDE)} | gain of the remedy |",
        "|---|---|---|---:|",
    ]
    for name in options.programs:
        (path,) = CORPUS.glob(f"*/{name}.py")
        with tempfile.TemporaryDirectory() as folder:
            findings = []
            for crowd in BESIDE:
                with beside(crowd):
                    findings.append(str(said(python, path, Path(folder) / crowd, options.seconds)))
            cells = [*findings, f"{gain(python, path, Path(folder), options.seconds):.2f}"]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if not options.print_only:
        method = (
            f"`benchmarks/freshmemory.py`: `profd attach` for {options.seconds:g} s to programs "
            "of `benchmarks/corpus` without their planted cause, with nothing beside them and "
            "with a busy process for each core. Said: the severity of `allocator-churn`, and its "
            "share of the time. Gain: steps a second with memory that is kept "
            "(`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`) over those without, the median "
            f"of {TURNS} pairs."
        )
        write_section("Memory that is taken anew", method, lines)


if __name__ == "__main__":
    main()
