"""How quick the dashboard is, as a person sees it: in a terminal, from key to screen and from data
to screen.

    python benchmarks/run.py longrun --hours 24 --ranks 4 --workers 8 -o long.profd
    python benchmarks/run.py dashboard long.profd          # to the first picture, and each move
    python benchmarks/run.py dashboard --live --seconds 60  # data to screen, keys, cost
    python benchmarks/run.py dashboard long.profd --answers  # the answers of `profd mcp`, the first of each kind
    python benchmarks/run.py dashboard --attach 60         # from the command to hot functions, and to a change of them

What is timed ends when the terminal has drawn it: the dashboard's output goes through a terminal
emulator that looks for the text that has to be there. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import os
import pty
import random
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pyte
from common.proportions import most
from cost import longrun
from support.sessions import running

from profd.cli import mcp
from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity
from profd.daemon.store.writer import RunWriter

COLUMNS, LINES, WIDE = 120, 36, 160
FIRST_SIGHT_S, CHANGE_S = 3.0, 6.0
DEADLINE_S = 120.0
BEGIN_S, LOOKS = 20, 20
"""The seconds until nobody has touched the dashboard for long, and the looks that are timed."""
LEFT, RIGHT, FAR_LEFT, ESCAPE = b"\x1b[D", b"\x1b[C", b"\x1b[1;2D", b"\x1b"
KEYS = [bytes([key]) for key in b"2jjo1jj4jj6jj7jj8?q3jji1tttzZ"]
"""Views, rows, orders, help, the flame graph, threads, time."""
_SAMPLES = re.compile(r"([\d,]+) samples")


class Terminal:
    """The dashboard in a terminal, as a command of profd opens it."""

    def __init__(self, *command: str, columns: int = COLUMNS) -> None:
        self.screen = pyte.Screen(columns, LINES)
        self._stream = pyte.ByteStream(self.screen)
        self.began_s = time.perf_counter()
        self.pid, self._fd = pty.fork()
        if not self.pid:
            os.environ["TERM"] = "xterm-256color"
            os.execv(sys.executable, [sys.executable, "-m", "profd", *command])
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))

    def press(self, key: bytes) -> None:
        """Press a key."""
        os.write(self._fd, key)

    def until(self, holds: Callable[[], object], deadline_s: float = DEADLINE_S) -> float:
        """Draw until something is on the screen, and return when it was."""
        end_s = time.perf_counter() + deadline_s
        while not holds():
            left_s = end_s - time.perf_counter()
            if left_s <= 0:
                raise SystemExit("it was not drawn in time:\n" + "\n".join(self.screen.display))
            self.draw(left_s)
        return time.perf_counter()

    def draw(self, wait_s: float) -> None:
        """Draw what the dashboard writes next."""
        if select.select([self._fd], [], [], wait_s)[0]:
            with contextlib.suppress(OSError):
                self._stream.feed(os.read(self._fd, 1 << 16))

    def rest(self, seconds: float) -> None:
        """Draw for a while."""
        end_s = time.perf_counter() + seconds
        while (left_s := end_s - time.perf_counter()) > 0:
            self.draw(left_s)

    def spent_s(self) -> float:
        """Return the CPU time of the dashboard so far, which other work on the machine changes least."""
        used = psutil.Process(self.pid).cpu_times()
        return used.user + used.system

    def line(self, part: str) -> str:
        """Return the line that has a text in it, or nothing."""
        return next((line for line in self.screen.display if part in line), "")

    def close(self) -> None:
        """End the dashboard."""
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)
        os.close(self._fd)


@contextlib.contextmanager
def opened(*command: str, columns: int = COLUMNS) -> Iterator[Terminal]:
    """Give the dashboard that a command opens, and end it."""
    terminal = Terminal(*command, columns=columns)
    try:
        yield terminal
    finally:
        terminal.close()


def measure_finished(run_file: Path) -> None:
    """Measure how soon a finished run is to be seen, and what each move in time takes."""
    # Wide enough for the time above the tables: two columns may have as many samples.
    with opened("view", str(run_file), columns=WIDE) as terminal:
        drawn_s = terminal.until(
            lambda: "rank 0" in terminal.line("rank 0") and bool(terminal.line("train.py:"))
        )
        report("to the first picture", [drawn_s - terminal.began_s])
        report_keys(terminal, "a move while the run is read", _moves(terminal, [LEFT] * 10))
        terminal.until(lambda: "reading the run" not in terminal.screen.display[0])
        report("to all of it read", [time.perf_counter() - terminal.began_s])
        report_keys(terminal, "a move", _moves(terminal, [FAR_LEFT] * 4 + [RIGHT] * 36))
        terminal.press(b"[")
        terminal.rest(1)
        report_keys(terminal, "a longer range", _moves(terminal, [RIGHT + b"]"] * 10))
        terminal.press(ESCAPE)
        terminal.rest(1)
        terminal.press(ESCAPE)
        terminal.rest(1)
        report_keys(terminal, "a zoom", _moves(terminal, [b"z"] * 5 + [b"Z"] * 5))
        report_keys(terminal, "a key", _drawn(terminal, KEYS * 5))


def _drawn(terminal: Terminal, keys: Sequence[bytes]) -> Iterator[float]:
    """Yield for each of some keys how long it took until anything was drawn.

    Of a run that has ended nothing is drawn without a key.
    """
    for key in keys:
        terminal.screen.dirty.clear()
        begun_s = time.perf_counter()
        terminal.press(key)
        yield terminal.until(lambda: bool(terminal.screen.dirty)) - begun_s
        terminal.rest(0.3)


def _moves(terminal: Terminal, keys: Sequence[bytes]) -> Iterator[float]:
    """Yield for each of some keys how long it took until the line above the tables had another
    time.
    """
    for key in keys:
        before, begun_s = terminal.line("8 Output"), time.perf_counter()
        terminal.press(key)
        yield terminal.until(functools.partial(_is_other, terminal, before)) - begun_s
        terminal.rest(0.2)


def _is_other(terminal: Terminal, before: str) -> bool:
    return terminal.line("8 Output") not in ("", before)


class Load:
    """A run that this process records: a second of four ranks each second."""

    def __init__(self, path: Path, ranks: int = 4) -> None:
        self.path = path
        self._ranks = ranks
        self._chance = random.Random(1)
        self._began_ns = time.time_ns() - SECOND_NS
        stat = processes.read_stat(os.getpid())
        assert stat is not None
        recorder = Identity(stat.pid, stat.start_ticks)
        started = longrun.run_started(self._began_ns, recorder)
        self._writer = RunWriter(path, started, longrun.describe)
        self.samples = 0

    def write(self) -> float:
        """Write what was sampled since the last call, and return when that was."""
        now_ns = time.time_ns()
        start_ns = max(now_ns - SECOND_NS, self._began_ns)
        found: list[records.Record] = []
        is_first = not self.samples
        for rank in range(self._ranks):
            if is_first:
                own = longrun.identity(rank)
                found.append(
                    records.ProcessSeen(
                        own, None, ("python",), "main", rank, None, "3.11.7", start_ns
                    )
                )
            taken = longrun.recording(rank, start_ns, self._chance, duration_ns=now_ns - start_ns)
            main = taken.threads[0]
            found.append(taken)
            self.samples += sum(interval.samples for interval in main.intervals)
        for record in found:
            self._writer.put(record)
        return time.perf_counter()

    def close(self) -> None:
        """Write the end."""
        self._writer.put(records.RunEnded(time.time_ns(), "stopped"))
        self._writer.close()


def measure_live(seconds: int) -> None:
    """Measure how soon what is written is to be seen, how soon keys are answered, and what the
    dashboard costs.
    """
    with tempfile.TemporaryDirectory() as folder:
        load = Load(Path(folder) / "live.profd")
        load.write()
        with opened("view", str(load.path)) as terminal:
            terminal.until(lambda: bool(terminal.line("train.py:")))
            for second in range(BEGIN_S + seconds):
                if second == BEGIN_S:
                    begun_s, before_s = time.perf_counter(), terminal.spent_s()
                terminal.rest(1.0)
                load.write()
            cost = (terminal.spent_s() - before_s) / (time.perf_counter() - begun_s)
            print(f"cost of the dashboard, {seconds} s untouched: {100 * cost:.2f} % of a core")
            delays = []
            for _ in range(LOOKS):
                terminal.rest(1.0)
                written_s = load.write()
                delays.append(
                    terminal.until(lambda: _shown_samples(terminal) >= load.samples) - written_s
                )
            report("data to screen", delays)
            report_keys(terminal, "a key", _answers(terminal, 20))
        load.close()


def measure_answers(run_file: Path) -> None:
    """Measure the CPU time of what `profd mcp` answers on a run, asked twice, of all and an hour."""
    RunReader.folds = False  # as the server has it
    run = str(run_file)
    asked: dict[str, Callable[..., str]] = {
        name: functools.partial(mcp._of_a_run(tell), run)
        for name, (tell, _) in mcp.OF_A_RUN.items()
    }
    asked["compare"] = functools.partial(mcp.compare, run, run)
    for words in ({}, {}, {"from_s": 3600.0, "to_s": 7200.0}):
        for name, ask in asked.items():
            before_s = time.process_time()
            ask(**words)
            spent_s = time.process_time() - before_s
            print(f"{name} {words or 'of all'}: {1000 * spent_s:,.0f} ms of CPU time", flush=True)


def measure_attach(times: int) -> bool:
    """Measure how soon an attach shows hot functions, and how soon others once they change.

    False where one is late.
    """
    first, changed = [], []
    with tempfile.TemporaryDirectory(prefix="profd-") as folder:
        os.environ["PROFD_HOME"] = folder
        for _ in range(times):
            with running("switching.py") as target, opened("attach", str(target.pid)) as terminal:
                terminal.until(functools.partial(terminal.line, "8 Output"))
                terminal.press(b"2")
                seen_s = terminal.until(functools.partial(terminal.line, "before_the_line"))
                first.append(seen_s - terminal.began_s)
                assert target.stdin is not None
                target.stdin.write("\n")
                target.stdin.flush()
                changed.append(
                    terminal.until(functools.partial(terminal.line, "after_the_line")) - seen_s
                )
    report("attach to hot functions", first)
    report("a change to the screen", changed)
    late = sum(
        one > FIRST_SIGHT_S or other > CHANGE_S for one, other in zip(first, changed, strict=True)
    )
    print(
        f"later than {FIRST_SIGHT_S:g} s or {CHANGE_S:g} s: {late} of {times} attaches; so at most "
        f"{most(late, times):.1%} of all are, with a certainty of 95 %"
    )
    return late == 0


def _shown_samples(terminal: Terminal) -> int:
    found = _SAMPLES.search(terminal.line("8 Output"))
    return int(found[1].replace(",", "")) if found else 0


def _answers(terminal: Terminal, times: int) -> Iterator[float]:
    """Yield how long it took until the help was on the screen, and off it again."""
    for number in range(times):
        begun_s = time.perf_counter()
        terminal.press(ESCAPE if number % 2 else b"?")
        yield terminal.until(functools.partial(_shows_keys, terminal, number % 2 == 0)) - begun_s
        terminal.rest(0.3)


def _shows_keys(terminal: Terminal, asked: bool) -> bool:
    return bool(terminal.line(" Keys ")) == asked


def report_keys(terminal: Terminal, what: str, times_s: Iterator[float]) -> None:
    """Print how long some keys took, and the mean CPU time of the dashboard for each."""
    before_s, found = terminal.spent_s(), list(times_s)
    spent_s = (terminal.spent_s() - before_s) / len(found)
    report(f"{what}, {1000 * spent_s:.0f} ms of CPU time", found)


def report(what: str, times_s: Sequence[float]) -> None:
    """Print the median, the 95th percentile and the longest of some times."""
    ordered = sorted(times_s)
    middle, most = (
        ordered[len(ordered) // 2],
        ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)],
    )
    print(
        f"{what}: {1000 * middle:,.0f} ms, 95 % within {1000 * most:,.0f} ms, at most "
        f"{1000 * ordered[-1]:,.0f} ms"
    )


def main() -> None:
    """Measure what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, nargs="?", help="a run file of longrun.py")
    parser.add_argument("--live", action="store_true", help="a run that grows")
    parser.add_argument("--attach", type=int, default=0, metavar="N", help="attach so often")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--answers", action="store_true", help="what assistants ask of the run")
    options = parser.parse_args()
    if options.answers:
        measure_answers(options.run)
    elif options.run is not None:
        measure_finished(options.run)
    if options.live:
        measure_live(options.seconds)
    if options.attach and not measure_attach(options.attach):
        raise SystemExit(1)
