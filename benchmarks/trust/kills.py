"""Kills profd at random moments while it records, and looks at what becomes of the target and of
the run file.

    python benchmarks/run.py kills [--runs N] [--seed N]

The target is a chain of digests, checked link by link at the end. After each kill the target has to
run on, never in state T; the run file has to open and to be summed up; and what is lost may be no
more than the recording in flight. Takes about fifteen seconds a kill, and says as a JSON line on
stderr what came of each. Writes its section of ``docs/measurements.md`` unless there were fewer
kills than a hundred; ends with 1 where any of that was not so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from common.load import LOADS
from common.loads.chain import link
from common.measurements import write_section
from common.proportions import most
from support.sessions import begin_session, running

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import ProfdError
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader

LOAD = LOADS / "chain.py"
LONGEST_S = 12.0
COUNTS_FROM = 100
# From one hand-over to the next, with what it takes to start, end and write a recording.
IN_FLIGHT_S = 5.0
_WATCHED_S = 0.5


class Kill(NamedTuple):
    """What one kill did.

    ``lost_s`` is the time from the end of the last recording in the file to the kill, from the
    start of the recording where there is none. ``failure`` says why the file could not be read.
    """

    after_s: float
    states: frozenset[str]
    ran_on: bool
    lost_s: float
    failure: str

    def is_sound(self) -> bool:
        """Say whether the target ran on and the file holds all but the recording in flight."""
        return (
            self.ran_on
            and self.states.isdisjoint("Tt")
            and not self.failure
            and self.lost_s <= IN_FLIGHT_S
        )


def kill_once(pid: int, diary: Path, after_s: float) -> Kill:
    """Record a process, kill the session after so many seconds, and look at both."""
    session = begin_session(pid)
    begun_ns = time.time_ns()
    _wait(after_s)
    os.kill(session.pid, signal.SIGKILL)
    killed_ns = time.time_ns()
    before = diary.stat().st_size
    states = _states(pid)
    session.wait_closed(10)
    failure, recorded_ns = "", begun_ns
    try:
        with RunReader(session.run_file) as reader:
            recorded_ns = max([begun_ns, *(row.end_ns for row in reader.recordings())])
            summarize(reader)
    except ProfdError as error:
        failure = str(error)
    session.run_file.unlink(missing_ok=True)
    return Kill(
        after_s,
        states,
        diary.stat().st_size > before,
        (killed_ns - recorded_ns) / SECOND_NS,
        failure,
    )


def wrong_links(diary: Path) -> tuple[int, int]:
    """Return how many links a chain has that are wrong, and how many it has."""
    lines = diary.read_text().split("\n")[:-1]
    digest, wrong = b"profd", 0
    for line in lines:
        digest = link(digest)
        wrong += line != digest.hex()
    return wrong, len(lines)


def progress(number: int, kill: Kill) -> str:
    """Return what came of a kill as a JSON line."""
    return json.dumps(
        {
            "kill": number,
            "after_s": round(kill.after_s, 3),
            "lost_s": round(kill.lost_s, 3),
            "states": "".join(sorted(kill.states)),
            "sound": kill.is_sound(),
        }
    )


def _states(pid: int) -> frozenset[str]:
    """Return the states in which a process was seen within half a second."""
    states: set[str] = set()
    deadline_s = time.monotonic() + _WATCHED_S
    while time.monotonic() < deadline_s:
        stat = processes.read_stat(pid)
        states.add(stat.state if stat else "gone")
        _wait(0.005)
    return frozenset(states)


def _wait(seconds: float) -> None:
    select.select([], [], [], seconds)


def main() -> int:
    """Kill as often as the command line says; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", "--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    kills: list[Kill] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        os.environ["PROFD_HOME"] = folder
        diary = Path(folder) / "diary"
        target = stack.enter_context(running(LOAD, diary))
        for number in range(options.runs):
            kills.append(kill_once(target.pid, diary, chance.uniform(0, LONGEST_S)))
            print(progress(number, kills[-1]), file=sys.stderr, flush=True)
            if not kills[-1].is_sound():
                print(f"kill {number}: {kills[-1]}", flush=True)
        stack.close()
        wrong, links = wrong_links(diary)
    sound = sum(kill.is_sound() for kill in kills)
    lost_s = max((kill.lost_s for kill in kills), default=0.0)
    median_s = statistics.median([kill.lost_s for kill in kills] or [0.0])
    lines = [
        f"{sound} of {len(kills)} kills were sound: the target ran on, was not seen stopped, and "
        "the run was readable.",
        f"Lost were {median_s:.1f} s of recording in the median, {lost_s:.1f} s at most, from "
        "the start of py-spy on;",
        f"{wrong} of the target's {links:,} links are wrong.",
        f"So at most {most(len(kills) - sound, len(kills)):.1%} of such kills are not sound, "
        "with a certainty of 95 %.",
    ]
    print("\n".join(lines))
    if len(kills) >= COUNTS_FROM:
        write_section(
            "Kills",
            "`benchmarks/trust/kills.py`: `kill -9` of the session at random moments of its first "
            f"{LONGEST_S:g} s, beside one target that is never started anew.",
            lines,
        )
    return 0 if sound == len(kills) and not wrong else 1
