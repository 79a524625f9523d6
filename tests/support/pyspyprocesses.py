"""What starts a py-spy, the real one or the one that stands in for it, and a program for it to
record.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

from support.sessions import running
from support.waiting import until

CALM = """
import os, sys, threading
def stand(count, label):
    print("ready", flush=True)
    if sys.stdin.readline():
        os.execv("/bin/sleep", ["sleep", "3600"])
def main():
    threading.Thread(target=threading.Event().wait, name="helper", daemon=True).start()
    stand(42, "a text")
main()
"""
"""A program that stands still in two threads until it is given a line.

Then it becomes another program.
"""
REAL = Path(os.environ.get("PROFD_PY_SPY") or Path(sysconfig.get_path("scripts")) / "py-spy")
HEAD = ("record", "--nonblocking", "--idle", "--threads", "--rate", "100")
ENVIRONMENT = {**os.environ, "RUST_BACKTRACE": "0"}
LOGGING = {**ENVIRONMENT, "RUST_LOG": "py_spy=warn"}


class Ended(NamedTuple):
    """What a py-spy that has ended left."""

    code: int
    out: str
    err: str


class PySpy(NamedTuple):
    """A py-spy: the real one or the stand-in."""

    path: Path

    def start(
        self, *words: str | Path, merged: bool = False, environment: dict[str, str] = ENVIRONMENT
    ) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [self.path, *words],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=subprocess.STDOUT if merged else pipe,
            text=True,
            env=environment,
        )

    def run(self, *words: str | Path) -> Ended:
        return ended(self.start(*words))

    def begin(
        self,
        pid: int,
        file: Path,
        *words: str,
        merged: bool = False,
        environment: dict[str, str] = ENVIRONMENT,
    ) -> Begun:
        """Start a recording into a file.

        Wait for its first line, and until it is ready for a SIGINT.
        """
        options: list[str | Path] = [
            *HEAD,
            "--format",
            "chrometrace",
            "--output",
            file,
            "--pid",
            str(pid),
            *words,
        ]
        process = self.start(*options, merged=merged, environment=environment)
        assert process.stdout is not None
        first_line = process.stdout.readline().rstrip("\n")
        until(lambda: handles_interrupts(process.pid), "its handler of SIGINT")
        return Begun(process, first_line)


class Begun(NamedTuple):
    """A recording that has said that it samples."""

    process: subprocess.Popen[str]
    first_line: str

    def end(self, number: signal.Signals | None = None) -> Ended:
        if number is not None:
            self.process.send_signal(number)
        return ended(self.process)


def handles_interrupts(pid: int) -> bool:
    """Say whether a process has a handler of SIGINT; py-spy has it only after its first line."""
    caught = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[0]
    return bool(int(caught, 16) >> signal.SIGINT - 1 & 1)


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate()
    return Ended(process.returncode, out, err or "")


def run_calm(folder: Path) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    script = folder / "calm.py"
    script.write_text(CALM)
    return running(script)
