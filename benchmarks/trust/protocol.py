"""Fifteen tasks of somebody who sees profd for the first time, in a terminal.

    python benchmarks/run.py protocol [--sizes 80x24,120x36,200x60] [--themes dark,light]
        [--pictures FOLDER]

Six terminals, about twelve minutes; writes its section of ``docs/measurements.md``. Each key and
each command is one that the screen names at that moment: the benchmark says by which words, and
ends if they are not there. A training with two workers runs meanwhile, and a script that hangs; a
third one is launched, and there is a run of the day before. Told are the keys and commands of a
task, and its seconds without those in which samples or a window are waited for. ``--pictures``
keeps the screens at which tasks end, drawn by Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from common.measurements import write_section
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from support import completerun
from support.browser import launched_chromium
from support.folders import PROGRAMS, TARGET
from support.terminal import Terminal

SIZES, THEMES = ("80x24", "120x36", "200x60"), ("dark", "light")
ENOUGH_S = 60.0
"""The time that a task may take."""
SCRIPT = "digits.py"
PLANTED = f"{SCRIPT}:88"
"""The line at which the training waits for its workers."""
HANGING = "import threading\n\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n"
_GROUNDS = {"dark": (30, 30, 30), "light": (250, 250, 250)}
_INKS = {"dark": (212, 212, 212), "light": (20, 20, 20)}
_COLORS = [
    (0, 0, 0),
    (205, 49, 49),
    (13, 160, 100),
    (160, 120, 0),
    (36, 114, 200),
    (188, 63, 188),
    (17, 140, 180),
    (160, 160, 160),
]


class Done(NamedTuple):
    """What a task took: keys and commands, and seconds without waits for samples."""

    task: str
    keys: int
    commands: int
    seconds: float


class Newcomer:
    """Does what the screen says, and counts; ``place`` is where trainings and runs are."""

    def __init__(self, terminal: Terminal, place: Place, keep: Callable[[str], None]) -> None:
        self.terminal, self.place, self.keeps = terminal, place, keep
        self.keys = self.commands = 0
        self.waited_s = 0.0

    def reads(self, *texts: str) -> str:
        """Wait until all of some texts are on the screen, and return the screen."""
        return self.terminal.wait_for(*texts)

    def waits(self, *texts: str) -> str:
        """Do as ``reads``; it is samples, a window or a program's start that is waited for."""
        begun_s = time.monotonic()
        screen = self.reads(*texts)
        self.waited_s += time.monotonic() - begun_s
        return screen

    def presses(self, key: str, said: str) -> None:
        """Press a key, of which the screen says what it does."""
        self.reads(said)
        self.keys += 1
        self.terminal.press(key)

    def looks_up(self, key: str, word: str, on_sheet: str) -> None:
        """Press a key that the line of keys names by a word, or, without room there, the help."""
        name = f"{key} {word}"
        if name not in self.reads("? help"):
            self.presses("?", said="? help")
            self.reads(on_sheet)
            self.presses("Escape", said="esc closes")
            self.until_gone("esc closes")
            name = "? help"
        self.presses(key, said=name)

    def types(self, line: str, said: str = "") -> None:
        """Type a line and Enter; the screen names it, or it is the name of the program."""
        if said:
            self.reads(said)
        self.commands += 1
        self.terminal.type(line)
        self.terminal.press("Enter")

    def until_gone(self, text: str) -> None:
        """Wait until a text has left the screen."""
        while text in self.terminal.screen():
            time.sleep(0.02)


class Place(NamedTuple):
    """What there is: the training's and the hanging script's PIDs, and the run of yesterday."""

    training: int
    hanging: int
    yesterday: str


def attach(person: Newcomer) -> None:
    person.types("profd")
    person.types("profd attach", said="Profile a running process and its children.")
    person.reads(str(person.place.training), "PID [")
    person.terminal.type(str(person.place.training))
    person.presses("Enter", said=f"{SCRIPT}")
    person.waits("your line", "live ▶")


def find_slow_line(person: Newcomer) -> None:
    person.waits("▲", f"({PLANTED})")


def ask_for_help(person: Newcomer) -> None:
    person.presses("?", said="? help")
    person.reads("open a view by its number", "leave; the script of profd run can be stopped")
    person.keeps("keys")
    person.presses("Escape", said="esc closes")
    person.until_gone("esc closes")


def find_who_waits(person: Newcomer) -> None:
    person.presses("4", said="4 Processes")
    person.reads("helper", "D ")
    person.keeps("processes")
    person.presses("6", said="6 why")
    person.waits("waits for", "⏎ proof")


def see_worker(person: Newcomer) -> None:
    person.presses("4", said="4 Processes")
    person.presses("Down", said="main")
    person.presses("Down", said="helper")
    person.presses("Enter", said="⏎ functions")
    person.waits("helper · pid", "blur")


def follow_finding(person: Newcomer) -> None:
    person.presses("6", said="6 why")
    person.presses("Enter", said="⏎ proof")
    person.waits(SCRIPT, "of the time has")


def export_speedscope(person: Newcomer) -> None:
    person.looks_up("e", "export", "export what is looked at")
    person.presses("Down", said="collapsed")
    person.presses("Enter", said="speedscope")
    person.waits("Exported")
    person.keeps("export")
    person.presses("q", said="q leave")
    person.presses("e", said="e  leave it running and end the recording")
    person.waits("dashboard: profd view")


def list_runs(person: Newcomer) -> None:
    person.types("profd")
    person.types("profd ls", said="List runs")
    person.waits(person.place.yesterday, "attached to")


def compare_ranges(person: Newcomer) -> None:
    run = person.place.yesterday
    person.types("profd diff -h", said="Say what changed from one run, or part of a run")
    person.types(f"profd diff {run} {run} --to 30 --new-from 30", said="--new-from TIME")
    person.waits("base  ", "new  ", "of training", "alike")


def report_yesterday(person: Newcomer) -> None:
    run = person.place.yesterday
    person.types("profd report -h", said="Write a self-contained HTML report of a run.")
    person.types(f"profd report {run} --open", said="Open it in your browser")
    person.waits(f"{run}.html", "opened file://")


def see_host(person: Newcomer) -> None:
    run = person.place.yesterday
    person.types(f"profd view {run}", said="Open the dashboard on a live or finished run.")
    person.waits("your line", "GPU", "? help")
    person.looks_up("g", "go to", "go to a time")
    person.reads("seconds from the start")
    person.terminal.type("36")
    person.presses("Enter", said="⏎")
    person.waits("┃")
    person.keeps("moment")
    person.presses("q", said="q leave")
    person.until_gone("q leave")


def dump_stuck(person: Newcomer) -> None:
    person.types("profd ls", said="List runs")
    person.types(f"profd dump {person.place.hanging}", said=str(person.place.hanging))
    person.waits("stuck.py:5")


def delete_run(person: Newcomer) -> None:
    person.types("profd ls", said="List runs")
    person.types(f"rm home/runs/{person.place.yesterday}.profd", said="delete")
    person.types("profd ls", said="delete")
    person.waits("Processes that can be attached to")


def take_window(person: Newcomer) -> None:
    person.types("profd run -h", said="Launch a command and profile it.")
    person.types("profd run --torch-window -- python train.py", said="--torch-window")
    person.waits("your line", "live ▶", "backward")
    person.presses("5", said="5 Torch")
    person.presses("w", said="w takes one")
    person.waits("aten::")


def stop_script(person: Newcomer) -> None:
    person.presses("q", said="q leave")
    person.reads("leave it running and end the recording")
    person.keeps("leaving")
    person.presses("s", said="s  stop the script")
    person.waits("has come to its end")
    person.presses("q", said="q leave")
    person.waits("stopped by Ctrl-C", "report: profd report")


Task = Callable[[Newcomer], None]
TASKS: dict[str, Task] = {
    "attach to a training": attach,
    "find the slow line": find_slow_line,
    "help": ask_for_help,
    "find who waits for whom": find_who_waits,
    "see one worker alone": see_worker,
    "follow a finding to its line": follow_finding,
    "export for speedscope": export_speedscope,
    "list the runs": list_runs,
    "compare two ranges": compare_ranges,
    "open the report of yesterday's run": report_yesterday,
    "find what GPU and host did at a time": see_host,
    "dump a process that hangs": dump_stuck,
    "delete a run": delete_run,
    "take a window of torch's operators": take_window,
    "stop the script": stop_script,
}
IN_SHELL = (attach, list_runs, compare_ranges, report_yesterday, see_host, dump_stuck, delete_run)
IN_SHELL += (take_window,)
"""The tasks that begin in the shell, on an empty screen with the list of commands."""


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Place]:
    """Give a folder with runs, scripts and trainings, and end them."""
    runs = folder / "home" / "runs"
    runs.mkdir(parents=True)
    began = datetime.now() - timedelta(days=1)
    run_id = f"{began:%Y%m%d-%H%M%S}-cifar-3fa9"
    run_file = completerun.write_complete_run(runs / f"{run_id}.profd")
    with contextlib.closing(sqlite3.connect(run_file)) as database, database:
        database.execute("UPDATE meta SET value = ? WHERE name = 'id'", (run_id,))
    (folder / SCRIPT).write_text((TARGET / SCRIPT).read_text())
    (folder / "train.py").write_text((PROGRAMS / "torchloop.py").read_text())
    (folder / "stuck.py").write_text(HANGING)
    os.environ["PROFD_HOME"] = str(folder / "home")
    begun = [begin(folder, words) for words in (f"{SCRIPT} --steps 1000000", "stuck.py")]
    try:
        yield Place(*begun, run_id)
    finally:
        for pid in begun:
            os.killpg(pid, signal.SIGKILL)


def begin(folder: Path, words: str) -> int:
    """Begin a script in a session of its own, below no other Python, and return its PID."""
    line = f"setsid python {words} >/dev/null 2>&1 & echo $!"
    told = subprocess.run(line, shell=True, cwd=folder, capture_output=True, check=True)
    return int(told.stdout)


def work_through(size: str, theme: str, keep: Callable[[str, str], None]) -> list[Done]:
    """Do all tasks in one terminal; ``keep`` gets a name and a screen with its colors."""
    columns, lines = map(int, size.split("x"))
    done: list[Done] = []
    with tempfile.TemporaryDirectory(prefix="profd-") as name:
        folder = Path(name)
        with (
            workplace(folder) as place,
            Terminal(folder, columns=columns, lines=lines) as terminal,
        ):
            terminal.set_background("#{:02x}{:02x}{:02x}".format(*_GROUNDS[theme]))
            for number, (task, work) in enumerate(TASKS.items(), start=1):
                if work in IN_SHELL:
                    terminal.type("clear; profd")
                    terminal.press("Enter")
                    terminal.wait_for("doctor")

                def keeps(word: str, number: int = number) -> None:
                    keep(f"{size}-{theme}-{number:02}-{word}", terminal.colors())

                person = Newcomer(terminal, place, keeps)
                begun_s = time.monotonic()
                work(person)
                took_s = time.monotonic() - begun_s - person.waited_s
                keeps(work.__name__)
                done.append(Done(task, person.keys, person.commands, took_s))
                print(f"{size} {theme}: {task}: {took_s:.1f} s", flush=True)
    return done


def draw(screens: dict[str, str], folder: Path) -> None:
    """Draw screens with their colors, each as a PNG."""
    with launched_chromium() as chromium:
        page = chromium.new_page()
        for name, screen in screens.items():
            size, theme, *_ = name.split("-")
            columns, lines = map(int, size.split("x"))
            console = Console(
                width=columns, file=io.StringIO(), record=True, color_system="truecolor"
            )
            console.print(Text.from_ansi(screen.replace("\n", "\n")), soft_wrap=True)
            colors = TerminalTheme(_GROUNDS[theme], _INKS[theme], _COLORS)
            code = (
                "<meta charset=utf-8><body style='margin:0;color:{foreground};"
                "background:{background}'><style>span{{display:inline-block;height:17px}}</style>"
                "<pre style='margin:6px;font:14px/17px DejaVu Sans Mono'>"
                "{code}</pre>"
            )
            html = console.export_html(theme=colors, inline_styles=True, code_format=code)
            page.set_viewport_size({"width": round(columns * 8.43) + 12, "height": lines * 17 + 12})
            page.set_content(html)
            page.screenshot(path=folder / f"{name}.png")


def table(done: Sequence[Sequence[Done]]) -> list[str]:
    """Return the rows of the tasks: keys, commands, and the longest of all terminals."""
    lines = ["| task | keys | commands | seconds, at most |", "|---|---|---|---|"]
    for same in zip(*done, strict=True):
        keys, commands = (
            max(one.keys for one in same),
            max(one.commands for one in same),
        )
        lines.append(
            f"| {same[0].task} | {keys} | {commands} | {max(one.seconds for one in same):.1f} |"
        )
    return lines


def main() -> None:
    """Do the tasks in each terminal, and write what they took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--themes", default=",".join(THEMES))
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ.update({"COLORTERM": "truecolor", "BROWSER": "echo opened %s"})
    screens: dict[str, str] = {}
    try:
        done = [
            work_through(size, theme, screens.__setitem__)
            for size in options.sizes.split(",")
            for theme in options.themes.split(",")
        ]
    finally:
        if options.pictures is not None:
            options.pictures.mkdir(parents=True, exist_ok=True)
            draw(screens, options.pictures)
    lines = table(done)
    print("\n".join(lines))
    method = (
        "By `benchmarks/trust/protocol.py`: each key and command is one that the screen names at that "
        f"moment; in terminals of {', '.join(SIZES)}, dark and light. The seconds leave out "
        "waits for samples, for a window, and for a program to start."
    )
    write_section("Fifteen tasks of a newcomer", method, lines)
    if late := [one for each in done for one in each if one.seconds > ENOUGH_S]:
        raise SystemExit(f"longer than {ENOUGH_S:g} s: {late}")
