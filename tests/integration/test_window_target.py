"""gdb and a process that runs: the text is executed in it, and whatever becomes of gdb the process
runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.launches import state
from support.sessions import give_line, ready
from support.waiting import eventually, until

from profd.daemon import processes
from profd.daemon.windows import gdb, symbols
from profd.daemon.windows.gdb import Text
from profd.daemon.windows.request import WindowFailed

pytestmark = pytest.mark.requires("gdb")

COUNTING = """
import sys, threading
count = 0
def answer():
    for _ in sys.stdin:
        print(count, sorted(globals()), flush=True)
threading.Thread(target=answer, daemon=True).start()
print("ready", flush=True)
while True:
    count += 1
"""


class Target:
    """A process that counts, and says on demand how far it is and which globals it has."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def ask(self) -> tuple[int, str]:
        assert self._process.stdout is not None
        give_line(self._process)
        count, _, names = self._process.stdout.readline().partition(" ")
        return int(count), names

    def tracer(self) -> int:
        return int(processes.status(self.pid)["TracerPid"])

    def runs_on(self) -> bool:
        """Say whether nobody holds it, and it counts."""
        return state(self.pid) in "RS" and self.tracer() == 0 and self.ask()[0] < self.ask()[0]

    def text(self, code: str) -> Text:
        return gdb.lay_out(self.pid, lambda page, size: code)


def interpreters() -> list[str]:
    """Return this interpreter and the system's, which on Debian has no libpython but all of it in
    the executable.
    """
    system = Path("/usr/bin/python3")
    return [sys.executable, *([str(system)] if system.exists() else [])]


@contextlib.contextmanager
def counting(python: str) -> Iterator[Target]:
    with ready([python, "-c", COUNTING]) as process:
        yield Target(process)


@pytest.fixture
def target() -> Iterator[Target]:
    with counting(sys.executable) as target:
        yield target


@pytest.mark.parametrize("python", interpreters())
async def test_text_is_executed_at_the_next_safe_point_and_the_process_goes_on(
    python: str, tmp_path: Path
) -> None:
    with counting(python) as target:
        names = target.ask()[1]
        text = target.text(f"open({str(tmp_path / 'proof')!r}, 'w').close()  # {'long ' * 2000}")
        await gdb.execute(target.pid, text, gdb.find_calls(target.pid))
        until((tmp_path / "proof").exists, "the text was executed")
        until(target.runs_on, "the process runs on")
        assert target.ask()[1] == names


async def test_call_that_hangs_is_taken_back_and_the_process_goes_on(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = gdb.find_calls(target.pid)._replace(
        queue=symbols.find(target.pid, ("pause",))["pause"]
    )
    monkeypatch.setattr(gdb, "TIMEOUT_S", 1.5)
    with pytest.raises(WindowFailed, match="was not done with process"):
        await gdb.execute(target.pid, target.text("pass"), hanging)
    until(target.runs_on, "the process runs on")


@contextlib.asynccontextmanager
async def held(
    target: Target, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[asyncio.Task[None]]:
    """Have gdb hold the process until it is killed."""
    known = gdb.commands

    def holding(pid: int, file: Path, text: Text, calls: gdb.CallAddresses) -> str:
        attach, _, rest = known(pid, file, text, calls).partition("\n")
        wait = f"shell exec >/dev/null 2>&1; touch {folder}/held; exec sleep 300"
        return f"{attach}\n{wait}\n{rest}"

    monkeypatch.setattr(gdb, "commands", holding)
    calls = gdb.find_calls(target.pid)
    task = asyncio.create_task(gdb.execute(target.pid, target.text("pass"), calls))
    await eventually((folder / "held").exists, "gdb holds the process")
    yield task


async def test_gdb_that_is_killed_leaves_the_process_running(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with held(target, tmp_path, monkeypatch) as task:
        assert state(target.pid) == "t"
        with pytest.raises(WindowFailed, match="is being debugged by process"):
            await gdb.execute(target.pid, target.text("pass"), gdb.find_calls(target.pid))
        os.killpg(target.tracer(), signal.SIGKILL)
        with pytest.raises(WindowFailed, match="gdb could not do it"):
            await task
    until(target.runs_on, "the process runs on")
