"""Tries the first command in each environment: true shares of a known program, or one line with
what makes it work.

    python benchmarks/run.py environments [--cache FOLDER] [--jobs N] [WORD ...]

Some 50 environments of ``environmentlist``, about 40 s each and, the first time, half an hour to
make them; takes root. With words, only those are tried that have one of them in their names; what
came of the others before is kept in the cache. Writes docs/environments.md; ends with 1 where an
environment failed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from common.measurements import circumstances
from support.folders import DOCS
from support.terminal import Terminal
from trust.environmentlist import (
    PROFD,
    UNTRIED,
    Environment,
    Started,
    environments,
    pid_of_container,
    wait_for_ready,
)
from trust.scratch import Missing, Scratch
from truth.known.spinning import SHARES

from profd.daemon import processes

FILE = DOCS / "environments.md"
LENGTH_S = 30
MOST_POINTS, MOST_ANSWER_S, MOST_SILENCE_S = 3.0, 10.0, 3.0
_READY_WITHIN_S = 240.0
_HINT = re.compile(r"recording pid|^profd: (?!looking|attaching)", re.MULTILINE)


class Row(msgspec.Struct):
    """What came of one environment.

    ``points`` is the largest error of a share, ``failures`` what was wrong.

    ``load`` is the machine's mean of the last minute, 0 where it was not noted.
    """

    name: str
    code: int | None = None
    answered_s: float = 0.0
    silence_s: float = 0.0
    points: float | None = None
    samples: int = 0
    said: str = ""
    failures: list[str] = []
    missing: str = ""
    load: float = 0.0


def try_out(environment: Environment, scratch: Scratch) -> Row:
    """Start the program, attach to it, and judge what came of it."""
    row = Row(environment.name)
    with tempfile.TemporaryDirectory(
        prefix="profd-", dir=scratch.folder, ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        folder.chmod(0o777)
        try:
            with running(environment, scratch, folder) as started:
                first = [*environment.attach(scratch, started)]
                row.load = os.getloadavg()[0]
                watched = started_processes(environment, scratch, started)
                before_s = cpu_s(watched)
                if environment.terminal:
                    on_terminal(environment, first, folder, row)
                else:
                    in_pipes(environment, first, folder, row)
                judge(environment, row)
                waited_until_s = (
                    time.monotonic() + 5
                )  # it may take less than a tick of the clock meanwhile
                while cpu_s(watched) <= before_s and time.monotonic() < waited_until_s:
                    time.sleep(0.1)
                if cpu_s(watched) <= before_s and environment.name != "a shell":
                    row.failures.append("the program does not go on")
                if stopped := [pid for one in watched for pid in tree(one) if state(pid) in "tT"]:
                    row.failures.append(f"stopped: {stopped}")
            if row.code == 0:
                judge_shares(folder / "a.profd", row)
        except Missing as error:
            row.missing = str(error)
        except subprocess.CalledProcessError as error:
            row.missing = f"it could not be made: {(error.stderr or str(error)).strip()[-300:]}"
    return row


@contextlib.contextmanager
def running(environment: Environment, scratch: Scratch, folder: Path) -> Iterator[Started]:
    """Run the program until the block ends, with all that it started."""
    words = environment.words(scratch, folder)
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        cwd=folder, env={**os.environ, **environment.variables}, start_new_session=True,
    )  # fmt: skip
    try:
        own_pid, _ = wait_for_ready(process, environment.ready, _READY_WITHIN_S)
        threading.Thread(
            target=lambda: process.stdout and process.stdout.read(), daemon=True
        ).start()
        yield Started(process.pid, own_pid)
    finally:
        if environment.container:
            subprocess.run(
                scratch.podman("rm", "--force", "--time", "0", environment.container),
                capture_output=True,
            )
        if "Slurm" in environment.name:
            subprocess.run(scratch.inside("scancel", "--name", folder.name), capture_output=True)
        for pid in tree(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def in_pipes(environment: Environment, first: Sequence[str], folder: Path, row: Row) -> None:
    """Run the first command for some seconds and note when it spoke."""
    output = f"{environment.root or ''}{'/a.profd' if environment.root == '/out' else folder / 'a.profd'}"
    words = [*first, "--headless", "--duration", str(LENGTH_S)]
    if environment.code != 73:  # where it is to find a place of its own, it is given none
        words += ["-o", output]
    begun_s = time.monotonic()
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        cwd=folder, env={**os.environ, "PROFD_HOME": str(folder / "home"), **environment.variables},
    )  # fmt: skip
    lines: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
    assert process.stdout is not None
    for line in process.stdout:
        lines.put((time.monotonic() - begun_s, line))
    row.code = process.wait()
    printed = [lines.get() for _ in range(lines.qsize())]
    ended_s = time.monotonic() - begun_s
    row.said = "".join(line for _, line in printed).strip()
    answers = [at for at, line in printed if _HINT.search(line)]
    row.answered_s = answers[0] if answers else ended_s
    moments = [0.0, *(at for at, _ in printed if at <= row.answered_s), row.answered_s]
    row.silence_s = max(after - before for before, after in itertools.pairwise(moments))


def on_terminal(environment: Environment, first: Sequence[str], folder: Path, row: Row) -> None:
    """Run the first command on a terminal until its dashboard shows a function, then leave it."""
    assert environment.terminal is not None
    columns, lines, term = environment.terminal
    with Terminal(folder, columns=columns, lines=lines, term=term) as terminal:
        begun_s = time.monotonic()
        variables = {"PROFD_HOME": str(folder / "home"), **environment.variables}
        terminal.start([*first, "-o", str(folder / "a.profd")], variables)
        while not terminal.uses_alternate_screen() and time.monotonic() - begun_s < MOST_ANSWER_S:
            time.sleep(0.05)
        row.answered_s = row.silence_s = time.monotonic() - begun_s
        terminal.wait_for("spin_half")
        time.sleep(LENGTH_S)
        terminal.press("q")
        time.sleep(1)
        if "profd-test-exited:" not in terminal.screen():
            terminal.press("Enter")
        row.code, row.said = terminal.wait_ended(), terminal.screen().strip()


def judge(environment: Environment, row: Row) -> None:
    """Compare code and words with what the environment is to give."""
    if row.code != environment.code:
        row.failures.append(f"exit code {row.code}, not {environment.code}")
    if "Traceback" in row.said:
        row.failures.append("a traceback")
    if environment.tells and not re.search(environment.tells, row.said):
        row.failures.append(f"does not say {environment.tells}")
    if row.answered_s > MOST_ANSWER_S:
        row.failures.append(f"answered after {row.answered_s:.1f} s")
    if row.silence_s > MOST_SILENCE_S:
        row.failures.append(f"silent for {row.silence_s:.1f} s")


def judge_shares(run: Path, row: Row) -> None:
    """Compare the shares of a run with the program's."""
    exported = subprocess.run(
        [PROFD, "export", str(run), "--format", "collapsed", "--processes"],
        capture_output=True,
        text=True,
    )
    counts = dict.fromkeys(SHARES, 0)
    for line in exported.stdout.splitlines():
        stack, _, count = line.rpartition(" ")
        for function in SHARES:
            if re.search(rf"(^|;){function}\b", stack):
                counts[function] += int(count)
    row.samples = sum(counts.values())
    if not row.samples:
        row.failures.append(
            f"no sample of the program: {exported.stderr.strip() or row.said[-200:]}"
        )
        return
    row.points = max(
        abs(counts[name] / row.samples - share) * 100 for name, share in SHARES.items()
    )
    if row.points > MOST_POINTS:
        row.failures.append(f"a share is {row.points:.1f} points off")


def tree(pid: int) -> list[int]:
    """Return a process and its living descendants."""
    return [pid, *processes.descendants(pid)]


def state(pid: int) -> str:
    stat = processes.read_stat(pid)
    return stat.state if stat else "X"


def started_processes(environment: Environment, scratch: Scratch, started: Started) -> set[int]:
    """Return the outermost processes of the program, by their pids on this machine."""
    if environment.container:
        return {pid_of_container(scratch, environment.container)}
    # The one that the program names may be below a daemon, or be a number of another namespace.
    is_here = "spin" in " ".join(processes.command_line(started.own_pid)) and started.own_pid > 2
    return {started.pid, started.own_pid} if is_here else {started.pid}


def cpu_s(pids: set[int]) -> float:
    """Return the CPU time of some process trees so far."""
    found = {pid for one in pids for pid in tree(one)}
    stats = [stat for one in found if (stat := processes.read_stat(one)) is not None]
    return sum(stat.cpu_ticks + stat.ended_children_ticks for stat in stats) / processes.CLOCK_TICKS


def written(rows: Sequence[Row]) -> str:
    """Return the page."""
    tried = [row for row in rows if not row.missing]
    sound = [row for row in tried if not row.failures]
    slowest = max((row.answered_s for row in tried), default=0.0)
    lines = [
        "# Environments",
        "",
        "`benchmarks/trust/environments.py` writes this page. A program that spends 50, 30 and 20 % of",
        "its time in three functions runs in each environment. The first command is",
        f"`profd attach PID`, for {LENGTH_S} s. An environment is sound if all holds: each share is",
        f"within {MOST_POINTS:.0f} points, or profd refuses with its own exit code and a line that",
        f"says what to do; it answers within {MOST_ANSWER_S:.0f} s, and is never silent for",
        f"{MOST_SILENCE_S:.0f} s until then; it writes no traceback; the program goes on.",
        "",
        f"**{len(sound)} of {len(tried)} environments are sound**; the slowest answer took "
        f"{slowest:.1f} s.",
        "",
        "| environment | first command | error of shares | answer |",
        "|---|---|---|---|",
    ]
    for row in rows:
        if row.missing:
            lines.append(f"| {row.name} | not tried: {_cell(row.missing)} | | |")
            continue
        came = "records" if row.code == 0 else f"exit code {row.code}"
        if row.failures:
            came = f"**{came}: {_cell('; '.join(row.failures))}**"
        points = "" if row.points is None else f"{row.points:.1f} points of {row.samples:,} samples"
        load = f" at load {row.load:.0f}" if row.load else ""
        lines.append(f"| {row.name} | {came} | {points} | {row.answered_s:.1f} s{load} |")
    refused = [row for row in tried if row.code]
    lines += ["", "## What the refusals say", "", "| environment | words |", "|---|---|"]
    lines += [f"| {row.name} | {_cell(_anonymous(row.said))} |" for row in refused]
    lines += ["", "## Not tried", "", "| environment | why |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in UNTRIED.items()]
    return "\n".join([*lines, "", f"_{circumstances()}_", ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _anonymous(said: str) -> str:
    """Return the words of profd alone, without the pids and folders of one run."""
    said = "\n".join(line for line in said.splitlines() if _HINT.match(line)).removeprefix(
        "profd: "
    )
    return re.sub(
        r"/\S*/profd-\w+", "FOLDER", re.sub(r"\b(pid|attach|exec) (\d+)", r"\1 PID", said)
    )


def main() -> int:
    """Try all environments that the command line selects; returns the exit code."""
    if shutil.which("tmux") is None:
        sys.exit("tmux is not installed")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cache", type=Path, default=Path("/var/tmp/profd-environments"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    chosen = [
        one
        for one in environments()
        if not options.words or any(word in one.name for word in options.words)
    ]
    scratch = Scratch(options.cache.resolve())

    def row_of(environment: Environment) -> Row:
        row = try_out(environment, scratch)
        print(json.dumps(msgspec.to_builtins(row)), file=sys.stderr, flush=True)
        return row

    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(row_of, chosen))
    finally:
        scratch.close()
    kept_in = scratch.folder / "rows.json"
    kept = msgspec.json.decode(kept_in.read_bytes(), type=list[Row]) if kept_in.exists() else []
    by_name = {row.name: row for row in (*kept, *rows)}
    known = [by_name[one.name] for one in environments() if one.name in by_name]
    kept_in.write_bytes(msgspec.json.format(msgspec.json.encode(known)))
    later = "not since the cache was made"
    FILE.write_text(
        written([by_name.get(one.name) or Row(one.name, missing=later) for one in environments()])
    )
    return 1 if any(row.failures for row in rows) else 0
