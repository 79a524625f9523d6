"""A program that works while something else is measured; the programs lie in
``benchmarks/common/loads``.

Those that run until they are killed say ``ready`` on a line of their own once they are up to speed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LOADS = Path(__file__).with_name("loads")


def command(name: str, *words: object) -> list[str]:
    """Return the command line of a load."""
    return [sys.executable, str(LOADS / f"{name}.py"), *map(str, words)]


@contextlib.contextmanager
def running(name: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """Run a load, from when it is ready on; it and its children are killed at the end."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command(name, *words), stdin=pipe, stdout=pipe, text=True, start_new_session=True
    )
    try:
        wait_ready(process)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many cores busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def wait_ready(process: subprocess.Popen[str]) -> None:
    """Wait for the line by which a load says that it is ready.

    Ends the benchmark where it never comes.
    """
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "ready":
            return
    sys.exit(f"{process.args!r} ended with {process.wait()} before it was ready")
