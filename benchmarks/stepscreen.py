"""How late the step on the dashboard is, beside the diaries that programs keep of their steps.

``python benchmarks/stepscreen.py [--pythons 3.12] [--programs paused_loop,mnist_main] [--seconds
30] [--at-once 4] [--busy] [--print-only]``, ten minutes; writes its section of
``docs/measurements.md``. ``profd attach`` runs in a tmux of its own for each program. The benchmark
captures its screen twice a second, and says how late the number on it is. That is the time since
the program was last within one step of the number. It is less where the program has just become
faster: then it is the time that the missing steps take at the pace of the last ten seconds. Where a
script counts no steps itself, the captures show how many it made before the recording. Exits with 1
if a number was over 1.5 s late.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import statistics
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from load import busy
from measurements import write_section
from proportions import most
from stepcounts import Failed, Job, jobs, training
from steptruth import NEAR, Diary, Made
from support.standins import site_packages
from support.terminal import Terminal

LATE_S = 1.5
EVERY_S = 0.5
PACE_NS = 10_000_000_000
_STEP = re.compile(r"step (~?)([\d,]+)")


class Shown(NamedTuple):
    """The step that a screen showed, and when."""

    at_ns: int
    step: int


class Screens(NamedTuple):
    """What was seen of a program: its numbers, how late each was, and when the first one came after
    `profd attach`.
    """

    job: Job
    shown: Sequence[Shown] = ()
    late_s: Sequence[float] = ()
    first_s: float | None = None
    failed: str = ""


def watch(job: Job, folder: Path, packages: Path, seconds: float) -> Screens:
    """Run a program, look at it in a dashboard, and compare with its diary."""
    try:
        with training(job, folder, packages) as pid:
            began_ns, shown = time.time_ns(), _captures(pid, folder, seconds)
    except Failed as failure:
        return Screens(job, failed=str(failure))
    if not shown:
        return Screens(job, failed="no step was shown")
    first_s = (shown[0].at_ns - began_ns) / 1e9
    return Screens(job, shown, lateness(shown, Diary(folder / "diary")), first_s)


def _captures(pid: int, folder: Path, seconds: float) -> list[Shown]:
    """Return the steps that a dashboard showed of a process."""
    found = []
    with Terminal(folder, columns=140, lines=44) as terminal:
        attach = [
            sys.executable,
            "-m",
            "profd",
            "attach",
            str(pid),
            "-o",
            str(folder / "run.profd"),
        ]
        terminal.start(attach, {"PROFD_HOME": str(folder / "home")})
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            at_ns = time.time_ns()
            if step := _STEP.search(terminal.screen().partition("\n\n")[0]):
                found.append(Shown(at_ns, int(step[2].replace(",", ""))))
            time.sleep(EVERY_S)
        terminal.press("q")
    return found


def lateness(shown: Sequence[Shown], diary: Diary) -> list[float]:
    """Return for each number how many seconds away the program was within a step of it."""
    units = [diary.steps, *([diary.batches] if diary.batches else [])]
    return min((_lateness(shown, made, diary) for made in units), key=max)


def _lateness(shown: Sequence[Shown], made: Made, diary: Diary) -> list[float]:
    if diary.number_of_first is not None and made is diary.steps:
        before = diary.number_of_first - 1
    else:
        before = round(statistics.median(one.step - made.whole(one.at_ns) for one in shown))
    return [_late_s(one.at_ns, one.step - before, made.ended_ns) for one in shown]


def _late_s(at_ns: int, step: int, ended_ns: Sequence[int]) -> float:
    """Return how far a time is from those at which this step, or the one before or after it, was
    the newest.

    Or how long what it is off takes, where that is less: in a pause there is no such time near.
    """
    made, recent = (bisect_left(ended_ns, at_ns - back_ns) for back_ns in (0, PACE_NS))
    off_s = (
        (abs(step - made) - NEAR) * PACE_NS / 1e9 / (made - recent) if made > recent else math.inf
    )
    first, last = max(step - NEAR - 1, 0), min(step + NEAR, len(ended_ns) - 1)
    from_ns = ended_ns[min(first, len(ended_ns) - 1)] if step > NEAR else 0
    to_ns = ended_ns[last]
    return max(min(max(from_ns - at_ns, at_ns - to_ns) / 1e9, off_s), 0.0)


def table(found: Sequence[Screens]) -> list[str]:
    """Return a line for each program, and what holds of all of them."""
    lines = [
        "| program | Python | first number | numbers | latest | over 1.5 s |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for one in sorted(found, key=lambda one: (one.job.program, one.job.version)):
        over = sum(late > LATE_S for late in one.late_s)
        lines.append(
            f"| {one.job.program} | {one.job.version} | {one.first_s:.1f} s | {len(one.shown)} "
            f"| {max(one.late_s):.1f} s | {over} |"
        )
    late = [late for one in found for late in one.late_s]
    over = sum(one > LATE_S for one in late)
    lines += [
        "",
        f"{over} of {len(late):,} numbers came more than {LATE_S} s late, "
        f"{most(over, len(late)):.1%} at most (95 %).",
    ]
    return lines


def main() -> None:
    """Watch all, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words = lambda text: [word for word in text.split(",") if word]  # noqa: E731
    parser.add_argument("--pythons", type=words, default=["3.12"])
    parser.add_argument("--programs", type=words, default=[])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--busy", action="store_true", help="beside two busy loops")
    parser.add_argument("--print-only", action="store_true")
    options = parser.parse_args()
    options.rounds, options.frameworks = 1, False
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        stack.enter_context(busy(2 if options.busy else 0))
        pool = stack.enter_context(ThreadPoolExecutor(options.at_once))
        packages = site_packages(home)

        def run(numbered: tuple[int, Job]) -> Screens:
            folder = home / str(numbered[0])
            folder.mkdir()
            return watch(numbered[1], folder, packages, options.seconds)

        found = list(pool.map(run, enumerate(jobs(options))))
    lines = table([one for one in found if not one.failed])
    failed = [f"{one.job.program} {one.job.version}: {one.failed}" for one in found if one.failed]
    print("\n".join([*lines, "", *failed]))
    if not options.print_only:
        method = (
            "`benchmarks/stepscreen.py`: `profd attach` in tmux beside each program for "
            f"{options.seconds:g} s, {options.at_once} at "
            f"once{', beside two busy loops' if options.busy else ''}; the screen is captured "
            "twice a second. A number is late by the time since the program was last within one "
            "step of it."
        )
        write_section("Steps on the screen", method, lines)
    sys.exit(1 if any(late > LATE_S for one in found for late in one.late_s) else 0)


if __name__ == "__main__":
    main()
