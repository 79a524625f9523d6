"""Stops, freezes, suspends and replaces a program while profd records it, and compares what profd
says of that.

``unread.py ROUNDS [SEED]`` prints a line for each thing that went wrong and a summary, and exits
with 1 if anything did. In each round a program has two things done to it at random moments, and in
some its main thread ends at last. No stack may have time meanwhile but for a few distances of
samples, and the gap has to be there with its reason. To freeze takes root.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader

PROFD = Path(sys.executable).with_name("profd")
PROGRAM = """
import ctypes, os, signal, sys, threading, time
signal.signal(signal.SIGUSR1, lambda *_: os.execv(sys.executable, [sys.executable, *sys.argv]))
signal.signal(signal.SIGUSR2, lambda *_: leave())
def leave():
    threading.Thread(target=train).start()
    with open("diary", "a") as diary: diary.write(f"{time.time_ns()}\\n")
    ctypes.CDLL(None).pthread_exit(None)
def load(): time.sleep(0.009)
def forward(): time.sleep(0.006)
def update(): sum(range(100_000))
with open("diary", "a") as diary: diary.write(f"{time.time_ns()}\\n")
def train():
    while True: load(); forward(); update()
train()
"""
MAY_BE_LATE_NS = 120_000_000
"""A dozen distances of samples at 100 Hz: what py-spy sees late on a machine that others use, too.
"""
LEAVES = 0.3
REASONS = {
    "stop": "stopped", "freeze": "frozen", "suspend": "suspended", "stop profd": "profd stopped", "exec": "exec",
}  # fmt: skip


class Done(NamedTuple):
    """What was done to a program, from when to when."""

    what: str
    from_ns: int
    to_ns: int


def freezer() -> tuple[Path, str, str, str] | None:
    """Return the folder of a group that can be frozen, the file that does, and its words.

    None if there is none.
    """
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mount, kind = Path(before.split()[4]), after.split()
        if kind[0] == "cgroup2":
            return mount, "cgroup.freeze", "1", "0"
        if kind[0] == "cgroup" and "freezer" in kind[-1].split(","):
            return mount, "freezer.state", "FROZEN", "THAWED"
    return None


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    found = freezer()
    assert found is not None
    mount, file, freeze, thaw = found
    group = mount / f"profd-unread-{pid}"
    group.mkdir(exist_ok=True)
    (group / "cgroup.procs").write_text(str(pid))
    try:
        (group / file).write_text(freeze)
        yield
    finally:
        (group / file).write_text(thaw)


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def next_word_after(number: signal.Signals, target: int, folder: Path) -> int:
    """Send a program a signal, and return the time that it writes into its diary upon it."""
    begun = (folder / "diary").read_text()
    os.kill(target, number)
    while not (now := (folder / "diary").read_text().removeprefix(begun)).endswith("\n"):
        time.sleep(0.01)
    return int(now)


def do(what: str, target: int, session: int, length_s: float, folder: Path) -> Done:
    """Do something to a program, or to profd, for a time."""
    from_ns = time.time_ns()
    if what == "exec":
        return Done(what, from_ns, next_word_after(signal.SIGUSR1, target, folder))
    pids = {"stop": [target], "suspend": [target, session], "stop profd": [session]}
    with contextlib.ExitStack() as held:
        held.enter_context(frozen(target) if what == "freeze" else stopped(*pids[what]))
        if session in pids.get(what, []):  # which starts no more py-spies now
            held.enter_context(stopped(*processes.children(session)))
        from_ns = time.time_ns()
        time.sleep(length_s)
        to_ns = time.time_ns()
    return Done(what, from_ns, to_ns)


def round_of(chance: random.Random, folder: Path, kinds: list[str]) -> list[str]:
    """Record a program to which two things are done, and return what is wrong with what profd says
    of it.
    """
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PROFD_HOME": str(folder / "home")}
    words = [
        PROFD,
        "run",
        "--headless",
        "--quiet",
        "-o",
        folder / "run.profd",
        "--",
        sys.executable,
        "program.py",
    ]
    launcher, target = subprocess.Popen(list(map(str, words)), cwd=folder, env=environment), 0
    try:
        while not (folder / "diary").exists() or not (folder / "run.profd").exists():
            time.sleep(0.05)
        time.sleep(3)
        with RunReader(folder / "run.profd") as reader:
            target, session = reader.info.target.pid, reader.info.recorder.pid
        done = []
        for what in chance.sample(kinds, 2):
            time.sleep(chance.uniform(0.5, 3))
            done.append(do(what, target, session, chance.uniform(1.5, 3), folder))
        time.sleep(2)
        if chance.random() < LEAVES:
            left_ns = next_word_after(signal.SIGUSR2, target, folder)
            time.sleep(3)
            done.append(Done("leave", left_ns, time.time_ns()))
        os.kill(target, signal.SIGKILL)
        launcher.wait(60)
    finally:
        launcher.kill()
        launcher.wait()
        with contextlib.suppress(OSError):
            if target:
                os.kill(target, signal.SIGKILL)
        with contextlib.suppress(OSError):
            group = freezer()
            (group[0] / f"profd-unread-{target}").rmdir() if group else None
    return list(judged(folder / "run.profd", done))


def judged(run_file: Path, done: list[Done]) -> Iterator[str]:
    with RunReader(run_file) as reader:
        # The thread that does the work of a main one is shown in its place, and counts as one then.
        mains = [
            thread.id for thread in reader.main_threads() if thread.os_tid == reader.info.target.pid
        ]
        intervals = list(reader.intervals(threads=mains))
        gaps, recordings = reader.gaps(), reader.recordings()
    if not intervals:
        yield "no samples"
    for what, from_ns, to_ns in done:
        # The program that an exec begins is read before it says that it runs.
        before_ns = from_ns + MAY_BE_LATE_NS if what == "exec" else to_ns
        found = [one for one in intervals if one.start_ns < before_ns]
        spent_ns = sum(max(min(one.end_ns, to_ns) - max(one.start_ns, from_ns), 0) for one in found)
        if spent_ns > MAY_BE_LATE_NS:
            yield (
                f"{what} for {(to_ns - from_ns) / SECOND_NS:.2f} s: {spent_ns / SECOND_NS:.3f} s "
                "are a stack's"
            )
        if what == "leave":  # profd takes the process for ended then
            continue
        held = {gap.reason: 0 for gap in gaps}
        for gap in gaps:
            held[gap.reason] += max(min(gap.end_ns, to_ns) - max(gap.start_ns, from_ns), 0)
        reason = max(held, key=held.__getitem__, default="none")
        if reason != REASONS[what] or not held[reason]:
            seen = [
                f"{gap.reason} {(gap.start_ns - from_ns) / 1e6:.0f} to {(gap.end_ns - from_ns) / 1e6:.0f}"
                for gap in gaps
            ]
            error_ms = max(one.clock_error_ns for one in recordings) / 1e6
            yield (
                f"{what} for {(to_ns - from_ns) / 1e6:.0f} ms: the reason is "
                f"{reason if held.get(reason) else 'none'}; gaps in ms since then: "
                f"{', '.join(seen) or 'none'}; py-spy's clock is known to {error_ms:.0f} ms"
            )
    spent_ns = sum(one.duration_ns for one in intervals)
    read_ns = sum(one.end_ns - one.start_ns for one in recordings)
    if spent_ns > read_ns:
        yield f"{spent_ns / SECOND_NS:.3f} s are of stacks, {read_ns / SECOND_NS:.3f} s were read"


def main() -> int:
    rounds, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kinds = [
        what
        for what in REASONS
        if what != "freeze" or (os.geteuid() == 0 and freezer() is not None)
    ]
    wrong = 0
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            found = round_of(random.Random(seed + number), Path(folder), kinds)
        wrong += bool(found)
        for text in found:
            print(f"round {seed + number}: {text}", flush=True)
    print(f"{rounds} rounds of {', '.join(kinds)}: {rounds - wrong} right, {wrong} wrong")
    return 1 if wrong else 0
