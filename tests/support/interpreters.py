"""Pythons of each version that this machine has, and programs in them that stand still until they
may go on.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from profd.daemon import processes
from profd.daemon.interpreter.frames import Interpreter, PythonFrame, open_interpreter
from profd.daemon.interpreter.integers import Global, IntegerReader, Local, local_of
from profd.daemon.interpreter.objects import Held, object_at
from profd.daemon.interpreter.slots import Slots
from support.present import there
from support.sessions import give_line, ready, wait_ready
from support.waiting import until

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_FOLDERS = ("/usr/bin", "/usr/local/bin")


def find_python(version: str) -> str | None:
    """Return a Python of this version, if there is one."""
    if version == OWN_VERSION:
        return sys.executable
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    found = [
        *pyenv,
        *(path for folder in _FOLDERS if (path := Path(folder) / f"python{version}").exists()),
    ]
    return str(found[-1]) if found else None


def python(version: str) -> str:
    """Return a Python of this version; skips the test where there is none."""
    return find_python(version) or pytest.skip(f"there is no Python {version} here")


class Standing:
    """A program that waits in ``input()``, after it has printed a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        self._wait_standing()

    def leave(self) -> None:
        """Let it go on."""
        give_line(self._process)

    def go_on(self) -> None:
        """Let it go on, and wait until it waits again."""
        self.leave()
        wait_ready(self._process)
        self._wait_standing()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _wait_standing(self) -> None:
        """Wait until a thread of it, or of a child that speaks for it, reads its standard input,
        and its others wait for that one: the line comes before both.
        """
        program = psutil.Process(self.pid)
        until(
            lambda: (
                any(map(_reads_a_line, [program, *program.children(recursive=True)]))
                and not _runs(self.pid)
            ),
            "waiting for a line",
        )


def _reads_a_line(process: psutil.Process) -> bool:
    """Return whether a thread of the process is in a system call on its file 0."""
    calls = Path(f"/proc/{process.pid}/task").glob("*/syscall")
    return any((processes.read(str(call)) or b"").split()[1:2] == [b"0x0"] for call in calls)


def _runs(pid: int) -> bool:
    """Return whether a thread of the process is on a processor, or waits for one."""
    states = Path(f"/proc/{pid}/task").glob("*/stat")
    return any((processes.read(str(one)) or b"").rpartition(b") ")[2][:1] == b"R" for one in states)


READY = 'def ready(): print("ready", flush=True); input()'


@contextlib.contextmanager
def standing(
    program: str = "\nready()", executable: str = sys.executable, *words: str
) -> Iterator[Standing]:
    """Run a program up to where it waits: each time it prints "ready" and reads a line.

    A program that begins with an empty line has a function for that in it, ``ready``.
    """
    program = READY + program if program.startswith("\n") else program
    with ready([executable, "-c", program, *words]) as process:
        yield Standing(process)


class Program:
    """A program that stands still, and the reader of its main thread."""

    def __init__(self, running: Standing) -> None:
        self.running = running
        self.python: Interpreter = open_interpreter(running.pid)
        self.thread = self.python.main_thread()
        self.reader = IntegerReader(self.python, self.thread)

    def frame(self, function: str) -> PythonFrame:
        return next(
            frame for frame in self.python.stack(self.thread) if frame.code.name == function
        )

    def local(self, function: str, name: str) -> Local:
        """Return a variable of a function that is on the stack."""
        return there(local_of(self.frame(function), name))

    def of_module(self, name: str) -> Global:
        """Return a variable of the program's module."""
        return Global(self.python.stack(self.thread)[-1].globals, name)

    def object_of(self, name: str) -> Held:
        """Return the object that a variable of the program's module refers to."""
        slot = Slots(self.python).in_dictionary(self.of_module(name).dictionary, name)
        return object_at(self.python, self.python.memory.word(slot.address))
