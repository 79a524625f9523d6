"""Makes each system call of profd's writing fail, one after the other, and says whether what must
hold after it does.

    python benchmarks/run.py faults [--every N] [--json] [SUBJECT ...]

Subjects are the writer of run files, the run file that is moved at its end, the supervisor's
register, reports, exports and the reader. Of each the calls on its files are counted by kind (open,
read, write, sync, truncate, rename, link, lock, map), and the allocations that SQLite makes for it.
Then it is done again with the first of them failing, the second, up to the last, with every error
that fits: a full disk, one that does not answer, a write that is cut short, a signal, a lock that
another holds, no memory. Of a run that is written each fault lasts for one call, for a while, and
for good. Of the allocations, which are thousands, every tenth fails. ``--every N`` takes every N-th
fault alone. What must hold stands in docs/reliability.md. Needs a C compiler. Writes its section of
``docs/measurements.md`` where everything was tried; ends with 1 where something did not hold.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common.measurements import write_section
from trust.faultsubjects import (
    ERRORS,
    FOREVER,
    KINDS,
    ONCE,
    PATIENCE_S,
    WHILE,
    Broken,
    Fault,
    Subject,
    clean_up,
    disks,
    subjects,
)

SOURCE = Path(__file__).with_suffix(".c")
LIBRARY_VARIABLE = "PROFD_FAULTS_LIBRARY"
_FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
_NEVER = sys.maxsize
EVERY = {"allocate": 10}
"""How many calls go by between two faults, for a kind with thousands of calls."""


class Shim:
    """The library that was preloaded into this process."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.faults_arm.argtypes = [
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_long,
            ctypes.c_long,
            ctypes.c_int,
        ]
        self._library.faults_seen.restype = self._library.faults_hits.restype = ctypes.c_long
        self._library.faults_sqlite_lies.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._library.faults_sqlite_lies(*_place_of_sqlite())

    def arm(self, folder: Path, fault: Fault) -> None:
        """Have calls fail from now on, as a fault says."""
        last = fault.number if fault.lasts == ONCE else _NEVER
        kind = KINDS.index(fault.kind) + 1
        self._library.faults_arm(os.fsencode(folder), kind, fault.number, last, fault.error)

    def disarm(self) -> None:
        """Have no call fail any more."""
        self._library.faults_disarm()

    @property
    def hits(self) -> int:
        """How many of them failed."""
        return int(self._library.faults_hits())

    @property
    def seen(self) -> int:
        """How many calls of the kind there were since they were armed."""
        return int(self._library.faults_seen())


def _place_of_sqlite() -> tuple[int, int]:
    """Return from where to where SQLite's code lies in this process."""
    import sqlite3  # noqa: F401  loads it

    found = re.findall(
        r"^(\w+)-(\w+) r-xp .*(?:libsqlite3|_sqlite3).*$", Path("/proc/self/maps").read_text(), re.M
    )
    return min(int(begin, 16) for begin, _ in found), max(int(end, 16) for _, end in found)


class Outcome(NamedTuple):
    """How the cases of a subject ended: in words, with the faults after which something did not
    hold.
    """

    endings: Counter[str]
    failures: list[tuple[Fault, str]]


def enumerate_faults(shim: Shim, subject: Subject, every: int) -> Outcome:
    """Do a subject with each of its calls failing."""
    endings: Counter[str] = Counter()
    failures: list[tuple[Fault, str]] = []
    for fault in faults_of(shim, subject, every):
        try:
            endings[do(shim, subject, fault)] += 1
        except Broken as error:
            failures.append((fault, str(error)))
        except Exception:  # noqa: BLE001  whatever breaks out is what is looked for
            failures.append((fault, traceback.format_exc()))
    return Outcome(endings, failures)


def faults_of(shim: Shim, subject: Subject, every: int) -> Iterator[Fault]:
    """Yield the faults of a subject; how many there are is counted by doing it without one."""
    at = 0
    for kind in KINDS:
        fault = Fault(kind, 0, _NEVER, ONCE)
        do(shim, subject, fault)
        for number in range(1, shim.seen + 1, EVERY.get(kind, 1)):
            for error in ERRORS[kind]:
                for lasts in (
                    subject.lasting if error != errno.EINTR else (ONCE,)
                ):  # a signal comes and is over
                    at += 1
                    if at % every == 0 and not (
                        kind == "lock" and lasts == FOREVER
                    ):  # SQLite itself waits for 10 s
                        yield Fault(kind, error, number, lasts)


def do(shim: Shim, subject: Subject, fault: Fault) -> str:
    """Do a subject once with a fault in it, and return how that ended."""
    with tempfile.TemporaryDirectory(prefix="profd-fault-", dir=disks()[0]) as name:
        folder, is_done = Path(name), threading.Event()
        if fault.lasts == WHILE:
            threading.Thread(target=_lift_soon, args=(shim, is_done)).start()
        try:
            return subject.act(folder, fault, lambda: shim.arm(folder, fault), shim.disarm)
        finally:
            is_done.set()
            shim.disarm()


def _lift_soon(shim: Shim, is_done: threading.Event) -> None:
    """Have a fault be over a moment after it was met."""
    while not shim.hits and not is_done.wait(0.002):
        pass
    if not is_done.wait(PATIENCE_S):
        shim.disarm()


def main() -> int:
    """Try the subjects named, or all; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="SUBJECT")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="take every N-th fault alone"
    )
    parser.add_argument("--json", action="store_true", help="say what came of it as JSON")
    options = parser.parse_args()
    library = os.environ.get(LIBRARY_VARIABLE)
    if library is None:
        return _in_another_process()
    shim, known = Shim(library), subjects()
    outcomes: dict[str, dict[str, object]] = {}
    rows = ["| subject | faults | how they ended | what did not hold |", "|---|---:|---|---:|"]
    for name in options.names or known:
        endings, failures = enumerate_faults(shim, known[name], options.every)
        count = endings.total() + len(failures)
        words = ", ".join(f"{number:,} {ending}" for ending, number in endings.most_common())
        outcomes[name] = {
            "faults": count,
            "endings": endings,
            "failures": [f"{fault}: {why}" for fault, why in failures],
        }
        rows.append(f"| {name} | {count:,} | {words} | {len(failures)} |")
        if not options.json:
            print(
                f"{name:12} {count:>6,} faults: {words}; {len(failures)} did not hold", flush=True
            )
            for fault, why in failures[:20]:
                print(f"  {fault}: {why}", flush=True)
    clean_up()
    if options.json:
        print(json.dumps(outcomes))
    elif options.every == 1 and not options.names:
        write_section("Faults by enumeration", _METHOD, rows)
    return 1 if any(entry["failures"] for entry in outcomes.values()) else 0


_METHOD = (
    "`benchmarks/trust/faults.py`: every system call on its files, and every tenth allocation of "
    "SQLite's, fails once for each error that fits; of the writer also for a while and for good. "
    "`whole`: done as without a fault; `said`: an error says why, and the next try is whole; "
    "`refused`: no run was begun, and nothing is left of it; `cut off, and said`: of a fault for "
    "good, where all that was committed is there."
)


def _in_another_process() -> int:
    """Compile the library, and do it all with that preloaded."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/faults.so"
        subprocess.run(["cc", *_FLAGS, "-o", library, str(SOURCE), "-ldl"], check=True)
        variables = {**os.environ, "LD_PRELOAD": library, LIBRARY_VARIABLE: library}
        return subprocess.run(sys.orig_argv, env=variables, check=False).returncode
