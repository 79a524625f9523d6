"""What the steps of a day with a GPU are made of: commands whose failure harms nothing, trainings,
readings, time.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.gpu.collector import GpuCollector
from profd.daemon.store.records import EventHappened, PointsTaken, Record
from profd.daemon.store.rows import PointRow

PROGRAMS = Path(__file__).with_name("gpu_programs.py")
PROFD = [sys.executable, "-m", "profd"]
Values = dict[str, Any]
T = TypeVar("T")


class Assumed(NamedTuple):
    """Something that the simulator or a document takes for granted, and whether it was so here."""

    what: str
    holds: bool
    seen: object


class Pace:
    """How long a step may take, and how much shorter than planned it is to be.

    The step ends by itself in time.
    """

    def __init__(self, scale: float, limit_s: float) -> None:
        """Begin now; ``scale`` is of all lengths of time."""
        self.scale, self._end_s = scale, time.monotonic() + limit_s
        self.left_out: list[object] = []

    @property
    def left_s(self) -> float:
        """The seconds that are left."""
        return self._end_s - time.monotonic()

    def seconds(self, planned: float, least: float) -> float:
        """Return a planned length at this scale."""
        return max(planned * self.scale, least)

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items while there is time for one that takes as long as the longest so far.

        The rest is left out.
        """
        longest_s = 0.0
        for item in items:
            if self.left_s < 1.1 * longest_s:
                self.left_out.append(item)
                continue
            begun = time.monotonic()
            yield item
            longest_s = max(longest_s, time.monotonic() - begun)


def said(words: list[str], limit_s: float, *, user: int | None = None, **environment: str) -> str:
    """Return what a command says, and how it ended where it failed.

    No command may take the step down.

    What takes too long gets SIGTERM with all that it started: ``profd run`` passes it on.
    """
    kept = {**os.environ, **environment}
    try:
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=kept,
            user=user,
            start_new_session=True,
        )
    except OSError as error:
        return f"{words[0]}: {error}"
    try:
        output, errors = process.communicate(timeout=max(limit_s, 1))
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGTERM)
        output, errors = process.communicate()
        errors += str(error)
    return output if process.returncode == 0 else f"{output}{errors}exit {process.returncode}"


def program(*words: str, limit_s: float = 120) -> Values:
    """Run a training bare, and return what its last line says."""
    return last_line(said([sys.executable, str(PROGRAMS), *words], limit_s))


def last_line(text: str) -> Values:
    """Return the JSON in the last line of an output, or its end where there is none."""
    with contextlib.suppress(ValueError, IndexError):
        found = json.loads(text.splitlines()[-1])
        return found if isinstance(found, dict) else {"said": found}
    return {"failed": text[-600:]}


class Profiled(NamedTuple):
    """What a training under profd said, and its summary."""

    said: Values
    summary: Values


def profiled(*words: str, options: tuple[str, ...] = (), limit_s: float = 120) -> Profiled:
    """Run a training under profd, and return its last line and the summary."""
    with tempfile.TemporaryDirectory() as home:
        run = [
            *PROFD,
            "run",
            "--headless",
            "--quiet",
            *options,
            "--",
            sys.executable,
            str(PROGRAMS),
            *words,
        ]
        output = said(run, limit_s, PROFD_HOME=home)
        found = Profiled(last_line(output), summary(home))
        keep_run(home, "-".join(words))
        return found


def keep_run(home: str, name: str) -> None:
    """Keep the run file of a folder of runs beside the results."""
    for path in Path(home).rglob("*.profd"):
        kept = Path(os.environ.get("GPU_SESSION_FOLDER", home), "runs", f"{name}.profd")
        kept.parent.mkdir(exist_ok=True)
        shutil.copy(path, kept)


def summary(home: str) -> Values:
    """Return the summary of the last run in a folder of runs."""
    text = said([*PROFD, "summary", "latest", "--json"], 60, PROFD_HOME=home)
    with contextlib.suppress(ValueError):
        found: Values = json.loads(text)
        return found
    return {"failed": text[-600:]}


def until_it_steps(log: Path, loop: subprocess.Popen[Any], pace: Pace) -> None:
    """Wait until a training has written down a few steps, or has ended."""
    while (
        pace.left_s > 0
        and loop.poll() is None
        and not (log.exists() and log.read_text().count("\n") > 5)
    ):
        time.sleep(0.2)


class Collected:
    """The real collector in this process, with all that it hands over."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.clock = Clock()
        self._collector = GpuCollector(self.clock, self.records.append, everything=True)

    def __enter__(self) -> Collected:
        self._collector.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._collector.close(5)

    def series(self, name: str) -> dict[str, list[PointRow]]:
        """Return the readings of a series by device."""
        found: defaultdict[str, list[PointRow]] = defaultdict(list)
        for taken in self.records:
            for point in taken.points if isinstance(taken, PointsTaken) else ():
                if point.name == name and point.device is not None:
                    at_ns = taken.at_ns if point.at_ns is None else point.at_ns
                    found[point.device].append(PointRow(at_ns, point.value))
        return found

    def summary(self) -> Values:
        """Return events, and by series how many readings there are, how far apart, and their mean."""
        names = {
            point.name
            for taken in self.records
            if isinstance(taken, PointsTaken)
            for point in taken.points
        }
        found: Values = {
            "events": [one.text for one in self.records if isinstance(one, EventHappened)]
        }
        for name in sorted(names):
            for device, points in self.series(name).items():
                apart = [after.at_ns - before.at_ns for before, after in itertools.pairwise(points)]
                period_s = statistics.median(apart) / SECOND_NS if apart else None
                found[f"{name} {device}"] = [
                    len(points),
                    period_s,
                    statistics.fmean(one.value for one in points),
                ]
        return found


def cuda() -> Any:  # noqa: ANN401
    """Return torch where it has a GPU, else None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None
