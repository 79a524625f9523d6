"""Compare what profd takes in two checkouts: CPU time of each part, and the bytes that it writes,
in pairs.

    git worktree add /tmp/before COMMIT
    python benchmarks/run.py beforeafter /tmp/before            # about 25 minutes on a quiet machine
    python benchmarks/run.py beforeafter /tmp/before --pairs 4 --minutes 10

Each part runs in a process of its own, with the code of one checkout and the packages of this one.
Orders alternate; a null pair, of this checkout with itself, is taken in each round. Sessions of all
three record one torch loop at the same time.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from common import steps
from common.measurements import write_section
from common.paired import distinguish, effect
from support.folders import ROOT

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS

METHOD = (
    "`benchmarks/cost/beforeafter.py`, {pairs} rounds of each part on a run of {minutes} minutes with "
    "{ranks} ranks (`benchmarks/cost/longrun.py`, about 60 samples a second of each rank): user and "
    "system time of the process and its children, interpreter and imports included. Ratio of this "
    "checkout to the other, with its 95 % interval, beside the ratio of this checkout to itself. "
    "Bytes are those of the files that are written. A session's own CPU: three sessions at once "
    "attach to one torch loop for {seconds:g} s; of each the CPU time of its threads, without "
    "py-spy, from the tenth second on. The recorded training is one of `tests/recordings`."
)
SNIPPETS = {
    "metrics: first look and 50 more": """
import sys
from pathlib import Path
try:
    from profd.daemon.metrics.runs import RunWatch
except ImportError:  # before the packages were merged
    from profd.daemon.metrics.watch import RunWatch
watch = RunWatch(Path(sys.argv[1]))
for _ in range(51):
    watch.take()
""",
    "dashboard: opened, three tabs": """
import asyncio, sys
from pathlib import Path
from profd.tui.app import ProfdApp
from profd.tui.widgets.header import Header

async def look():
    app = ProfdApp(Path(sys.argv[1]), keys_fd=None, may_end=True)
    async with app.run_test(size=(120, 36)) as pilot:
        for key in ("", "2", "3", "1"):
            if key:
                await pilot.press(key)
            while True:
                shown = app.screen_stack[0].query_one(Header).snapshot
                asked = getattr(app.feed, "view", None) or app.feed._view  # as older trees have it
                if shown is not None and shown.read_share == 1 and shown.view == asked:
                    break
                await asyncio.sleep(0.01)

asyncio.run(look())
""",
}
"""Parts that no command runs alone, as programs: their argument is a run file."""
REPLAY = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from support.recordings import replay
replay("training", Path(sys.argv[3]))
"""
TARGET = "the run file"
REPLAYED = "a recorded training, from py-spy's bytes to its run file"
SESSION = "a session's own CPU"
SESSION_FILE = "the run file of a session"
STARTED_S = 10.0


class Checkout:
    """A checkout of this project with a run that it wrote."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        folder.mkdir()
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(root / "src"),
            "PROFD_HOME": str(folder / "home"),
        }
        # Else each start would compile all modules anew.
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for package in ("cli", "daemon", "tui"):
            compileall.compile_dir(root / package, quiet=2)
        self.bytes: dict[str, int] = {}

    def _writer(self) -> list[str]:
        """Return the words that run ``longrun``: before there was a runner it was a script."""
        benchmarks = self._root / "benchmarks"
        runner = benchmarks / "run.py"
        return [str(runner), "longrun"] if runner.exists() else [str(benchmarks / "longrun.py")]

    def take(self, part: str, minutes: float, ranks: int) -> float:
        """Run a part, and return the seconds of CPU that it took."""
        run, replayed, report = (
            self._folder / name for name in ("run.profd", "replayed.profd", "report.html")
        )
        words: Mapping[str, list[str]] = {
            REPLAYED: [
                "-c",
                REPLAY,
                str(self._root / "tests"),
                str(self._root / "benchmarks"),
                str(replayed),
            ],
            TARGET: [
                *self._writer(),
                "--hours",
                str(minutes / 60),
                "--ranks",
                str(ranks),
                "-o",
                str(run),
            ],
            "summary": ["-m", "profd", "summary", str(run)],
            "report": ["-m", "profd", "report", str(run), "-o", str(report)],
            **{name: ["-c", snippet, str(run)] for name, snippet in SNIPPETS.items()},
        }
        written = {TARGET: run, REPLAYED: replayed, "report": report}.get(part)
        if written is not None:
            written.unlink(missing_ok=True)
        with subprocess.Popen(
            [sys.executable, *words[part]],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
        ) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{part} in {self._root} ended with {process.returncode}")
        if written is not None:
            self.bytes[part] = written.stat().st_size
        return usage.ru_utime + usage.ru_stime

    def attach(self, pid: int, seconds: float) -> subprocess.Popen[bytes]:
        """Begin to record a process."""
        run = self._folder / "session.profd"
        run.unlink(missing_ok=True)
        words = [
            "-m",
            "profd",
            "attach",
            str(pid),
            "--headless",
            "-o",
            str(run),
            "--duration",
            f"{seconds:g}",
        ]
        return subprocess.Popen(
            [sys.executable, *words], env=self._environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd=self._folder,
        )  # fmt: skip

    def session_s(self) -> float:
        """Return the CPU seconds of the threads of the session that records, without its children."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self._folder / 'session.profd'}?mode=ro", uri=True)
        ) as file:
            (recorder,) = file.execute("SELECT value FROM meta WHERE name = 'recorder'").fetchone()
        pid = json.loads(recorder)[0]
        spent = (
            processes.read(f"/proc/{pid}/task/{thread}/schedstat")
            for thread in processes.thread_ids(pid)
        )
        return sum(int(one.split()[0]) for one in spent if one) / SECOND_NS

    def weigh_session(self) -> None:
        """Note the size of the run file that the last session wrote."""
        self.bytes[SESSION_FILE] = (self._folder / "session.profd").stat().st_size


def sessions(checkouts: list[Checkout], seconds: float) -> dict[Checkout, float]:
    """Record one loop with all checkouts at once, and return the CPU seconds of each session after
    its start.
    """
    with steps.bare(1) as loop:
        loop.begin(steps.ENDLESS)
        attached = [one.attach(loop.pid, seconds) for one in checkouts]
        time.sleep(STARTED_S)
        before = {one: one.session_s() for one in checkouts}
        time.sleep(seconds - STARTED_S - 2)
        spent = {one: one.session_s() - before[one] for one in checkouts}
        for one, process in zip(checkouts, attached, strict=True):
            if process.wait():
                raise SystemExit(f"a session ended with {process.returncode}")
            one.weigh_session()
        return spent


def main() -> None:
    """Take the pairs and write a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40, help="of each session")
    options = parser.parse_args()
    times: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        this, again, other = (
            Checkout(root, Path(folder) / name)
            for root, name in ((ROOT, "this"), (ROOT, "again"), (options.other.resolve(), "other"))
        )
        for number in range(options.pairs):
            checkouts = [this, again, other]
            order = checkouts if number % 2 else checkouts[::-1]
            for part in (SESSION, REPLAYED, TARGET, "summary", "report", *SNIPPETS):
                if part == SESSION:
                    took = sessions(order, options.seconds)
                else:
                    took = {one: one.take(part, options.minutes, options.ranks) for one in order}
                times[part].append((took[this], took[again], took[other]))
                print(
                    f"{number + 1:2}  {part:32} {took[other]:7.3f} s → {took[this]:7.3f} s",
                    flush=True,
                )
        lines = ["| part | before | after | ratio | this to itself |", "|---|---|---|---|---|"]
        for part, rows in times.items():
            treated, null = (
                [(one, old) for one, _, old in rows],
                [(one, again) for one, again, _ in rows],
            )
            found = effect(treated)
            lines.append(
                f"| {part} | {found.median_other:.3f} s | {found.median_one:.3f} s | "
                f"{found.as_ratio()}, "
                f"p = {distinguish(treated, null).p:.2g} | {effect(null).as_ratio()} |"
            )
        for part, size in this.bytes.items():
            before = other.bytes[part]
            lines.append(
                f"| {part} | {before / 1e6:.2f} MB | {size / 1e6:.2f} MB | {size / before:.3f} | |"
            )
    commit = subprocess.run(
        ["git", "-C", str(options.other), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    )
    sizes = {"minutes": f"{options.minutes:g}", "ranks": options.ranks, "seconds": options.seconds}
    method = METHOD.format(pairs=options.pairs, **sizes)
    write_section("Before and after", f"{method} Before is commit {commit.stdout.strip()}.", lines)
    print("\n".join(lines))
