"""Measures root's daemon and `profd ls` beside a user whose processes are dear to look at.

Run as root: ``python benchmarks/run.py neighbors [--seconds 120] [--quick]``. One user runs 90
processes: each has a command line of a gigabyte, each third one maps of 200 MB besides, and two
have 10,000 threads. They take 3 GB. A second user begins a training every ten seconds. Prints what
has to hold, and ends with 1 unless it does.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from common import load

from profd.daemon import processes

COUNT, COMMAND_BYTES, MAPS_BYTES, THREADS = 90, 1 << 30, 200_000_000, 10_000
WATCHDOG_S, MOST_MB, MOST_LS_S = 10.0, 300, 3.0
ATTACKER, USER = 61_001, 61_002
SYSTEM_PYTHON = "/usr/bin/python3"
TRAINING = """
import mmap, sys, time
with open(sys.argv[1], "r+b") as file:
    library = mmap.mmap(file.fileno(), 0)
until = time.monotonic() + 30
while time.monotonic() < until:
    sum(range(100_000))
"""
CONFIGURATION = '[[rule]]\nname = "torch"\ntorch = true\nmin_age_s = 1\n'


@contextlib.contextmanager
def attackers(folder: Path, *, quick: bool) -> Iterator[None]:
    """Run the processes of the first user, all of them grown."""
    program = shutil.copy(load.LOADS / "hostile.py", folder)
    started = []
    try:
        for number in range(COUNT):
            maps_bytes = MAPS_BYTES if number % 3 == 0 else 0
            threads = THREADS if number in ((1,) if quick else (1, 2)) else 0
            words = [SYSTEM_PYTHON, program, str(COMMAND_BYTES), str(maps_bytes), str(threads)]
            pipe = subprocess.PIPE
            started.append(
                subprocess.Popen(
                    words, stdout=pipe, text=True, user=ATTACKER, group=ATTACKER, cwd="/"
                )
            )
            load.wait_ready(started[-1])
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


class Daemon:
    """A `profd daemon` that is watched as by systemd."""

    def __init__(self, home: Path) -> None:
        self.signs: list[float] = []
        self.recorded: set[int] = set()
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._told.bind(str(home / "notify"))
        (home / "daemon.toml").write_text(CONFIGURATION)
        told = {
            "NOTIFY_SOCKET": str(home / "notify"),
            "WATCHDOG_USEC": str(int(2 * WATCHDOG_S * 1e6)),
        }
        words = [sys.executable, "-m", "profd", "daemon"]
        self.process = subprocess.Popen(
            words, env={**os.environ, **told}, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._hear, daemon=True).start()
        threading.Thread(target=self._read, daemon=True).start()

    def most_mb(self) -> float:
        """Return the most memory that it ever had."""
        return int(processes.status(self.process.pid).get("VmHWM", "0 kB").split()[0]) / 1024

    def _hear(self) -> None:
        while True:
            if b"WATCHDOG=1" in self._told.recv(4096):
                self.signs.append(time.monotonic())

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            print("   ", line.strip()[:200], flush=True)
            if '"event":"recording"' in line.replace(" ", ""):
                self.recorded.add(
                    int(line.partition('"pid":')[2].strip().partition(",")[0].rstrip("}"))
                )


def measure(folder: Path, seconds: float) -> bool:
    """Run the daemon for so long, and say what held."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.environ["PROFD_HOME"] = str(home)
    library = folder / "libtorch_cpu.so"
    library.write_bytes(bytes(4096))
    library.chmod(0o666)
    daemon, trainings, lists, lists_cpu_s = Daemon(home), [], [], []
    until_s = time.monotonic() + seconds
    try:
        while time.monotonic() < until_s:
            words = [SYSTEM_PYTHON, "-c", TRAINING, str(library)]
            trainings.append(subprocess.Popen(words, user=USER, group=USER, cwd="/"))
            began_s = time.monotonic()
            before_s = sum(os.times()[2:4])
            subprocess.run(
                [sys.executable, "-m", "profd", "ls"], stdout=subprocess.DEVNULL, check=True
            )
            lists.append(time.monotonic() - began_s)
            lists_cpu_s.append(sum(os.times()[2:4]) - before_s)
            time.sleep(max(10 - lists[-1], 0))
        ended_s, most_mb, cpu = (
            time.monotonic(),
            daemon.most_mb(),
            processes.read_stat(daemon.process.pid),
        )
    finally:
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.wait(60)
        for training in trainings:
            training.kill()
            training.wait()
    signs = [*daemon.signs, ended_s]
    longest_s = max(after - before for before, after in itertools.pairwise(signs))
    due = [
        training.pid for training in trainings[: len(trainings) - 2]
    ]  # the last ones are too young
    missed = [pid for pid in due if pid not in daemon.recorded]
    held = {
        f"longest time without a sign of life: {longest_s:.1f} s": longest_s <= WATCHDOG_S + 2,
        f"most memory of the daemon: {most_mb:.0f} MB": most_mb <= MOST_MB,
        f"trainings of the other user recorded: {len(due) - len(missed)} of {len(due)}": not missed,
        f"longest `profd ls`: {max(lists):.1f} s": max(lists) <= MOST_LS_S,
    }
    for what, holds in held.items():
        print(("holds   " if holds else "BROKEN  ") + what)
    print(
        f"CPU of a list: at most {max(lists_cpu_s):.1f} s; on a machine that does nothing else "
        "it takes as long"
    )
    print(
        f"CPU of the daemon: {cpu.cpu_ticks / processes.CLOCK_TICKS / seconds:.1%} of a core"
        if cpu
        else ""
    )
    return all(held.values())


def main() -> None:
    """Measure, and fail where something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--quick", action="store_true", help="40 s, and one process with threads")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run it as root: it needs two other users")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with attackers(folder, quick=options.quick):
            sys.exit(not measure(folder, 40 if options.quick else options.seconds))
