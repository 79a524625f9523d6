"""What a process of profd's does first: its program, run with functions that only say that they
were called.
"""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import importlib, runpy, sys

def say(name, is_last):
    def called(*arguments, **_):
        sys.stderr.write(f"called {name}\\n" if is_last else f"called {name}{arguments}\\n")
        if is_last:
            raise SystemExit

    return called

_, program, names, *words = sys.argv
for name in names.split(","):
    module, _, function = name.rpartition(".")
    setattr(importlib.import_module(f"profd.daemon.{module}"), function, say(function, names.endswith(name)))
sys.argv[1:] = words
runpy.run_module(f"profd.daemon.{program}", run_name="__main__")
"""


def beginning_of(
    program: str, *functions: str, words: tuple[str, ...] = (), given: bytes | None = None
) -> list[str]:
    """Return the calls of these functions by a program of profd's, in their order, with their
    arguments.

    ``program`` and the functions are named below ``profd.daemon``; the call of the last function
    ends it. It is ``given`` this on its stdin, which stays open without it.
    """
    command = [sys.executable, "-c", _PROGRAM, program, ",".join(functions), *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        if given is not None:
            process.stdin.write(given.decode())
            process.stdin.close()
        said = process.stderr.read()
    lines = [
        line.removeprefix("called ") for line in said.splitlines() if line.startswith("called ")
    ]
    assert lines, f"it called none of these: {said}"
    return lines
