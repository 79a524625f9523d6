"""Compare what profd takes in two checkouts: CPU time of each part, and the bytes that it writes, in pairs.

    git worktree add /tmp/before COMMIT
    python benchmarks/beforeafter.py /tmp/before            # about 25 minutes on a quiet machine
    python benchmarks/beforeafter.py /tmp/before --pairs 4 --minutes 10

Each part runs in a process of its own, with the code of one checkout and the packages of this one. Orders alternate; a
null pair, of this checkout with itself, is taken in each round.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from measurements import write_section
from paired import distinguish, effect

HERE = Path(__file__).parents[1]
METHOD = (
    "`benchmarks/beforeafter.py`, {pairs} rounds of each part on a run of {minutes} minutes with {ranks} ranks "
    "(`benchmarks/longrun.py`, about 60 samples a second of each rank): user and system time of the process and its "
    "children, interpreter and imports included. Ratio of this checkout to the other, with its 95 % interval, beside "
    "the ratio of this checkout to itself. Bytes are those of the files that are written."
)
WRITE = "benchmarks/longrun.py"
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
    app = ProfdApp(Path(sys.argv[1]), pty_fd=None, may_end=True)
    async with app.run_test(size=(120, 36)) as pilot:
        for key in ("", "2", "3", "1"):
            if key:
                await pilot.press(key)
            while True:
                shown = app.screen_stack[0].query_one(Header).snapshot
                if shown is not None and shown.read_share == 1 and shown.view == app.feed._view:
                    break
                await asyncio.sleep(0.01)

asyncio.run(look())
""",
}
"""Parts that no command runs alone, as programs: their argument is a run file."""
TARGET = "the run file"


class Checkout:
    """A checkout of this project with a run that it wrote."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        folder.mkdir()
        self.bytes: dict[str, int] = {}

    def take(self, part: str, minutes: float, ranks: int) -> float:
        """Run a part, and return the seconds of CPU that it took."""
        run, report = self._folder / "run.profd", self._folder / "report.html"
        words: Mapping[str, list[str]] = {
            TARGET: [str(self._root / WRITE), "--hours", str(minutes / 60), "--ranks", str(ranks), "-o", str(run)],
            "summary": ["-m", "profd", "summary", str(run)],
            "report": ["-m", "profd", "report", str(run), "-o", str(report)],
            **{name: ["-c", snippet, str(run)] for name, snippet in SNIPPETS.items()},
        }
        written = {TARGET: run, "report": report}.get(part)
        if written is not None:
            written.unlink(missing_ok=True)
        packages = {"PYTHONPATH": str(self._root / "src"), "PROFD_HOME": str(self._folder / "home")}
        with subprocess.Popen(
            [sys.executable, *words[part]], env={**os.environ, **packages}, stdout=subprocess.DEVNULL, cwd=self._folder
        ) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{part} in {self._root} ended with {process.returncode}")
        if written is not None:
            self.bytes[part] = written.stat().st_size
        return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Take the pairs and write a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    times: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        this, again, other = (
            Checkout(root, Path(folder) / name)
            for root, name in ((HERE, "this"), (HERE, "again"), (options.other.resolve(), "other"))
        )
        for number in range(options.pairs):
            for part in (TARGET, "summary", "report", *SNIPPETS):
                checkouts = [this, again, other]
                order = checkouts if number % 2 else checkouts[::-1]
                took = {one: one.take(part, options.minutes, options.ranks) for one in order}
                times[part].append((took[this], took[again], took[other]))
                print(f"{number + 1:2}  {part:32} {took[other]:7.2f} s → {took[this]:7.2f} s", flush=True)
        lines = ["| part | before | after | ratio | this to itself |", "|---|---|---|---|---|"]
        for part, rows in times.items():
            treated, null = [(one, old) for one, _, old in rows], [(one, again) for one, again, _ in rows]
            found = effect(treated)
            lines.append(
                f"| {part} | {found.median_other:.2f} s | {found.median_one:.2f} s | {found.as_ratio()}, "
                f"p = {distinguish(treated, null).p:.2g} | {effect(null).as_ratio()} |"
            )
        for part, size in this.bytes.items():
            before = other.bytes[part]
            lines.append(f"| {part} | {before / 1e6:.2f} MB | {size / 1e6:.2f} MB | {size / before:.3f} | |")
    commit = subprocess.run(
        ["git", "-C", str(options.other), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    method = METHOD.format(pairs=options.pairs, minutes=f"{options.minutes:g}", ranks=options.ranks)
    write_section("Before and after", f"{method} Before is commit {commit.stdout.strip()}.", lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
