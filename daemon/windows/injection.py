"""Takes windows by executing code in a running process: through gdb, or ``sys.remote_exec`` of Python 3.14.

Owns the text and the waiting. How the text gets there is ``gdb``'s and
``remote``'s to know. Nothing of this happens unless the user asked for it by name.

The interpreter that asks must be of the same minor version as the one that is asked, so it need not be profd's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from profd.daemon.clock import Clock
from profd.daemon.store.records import Identity
from profd.daemon.userfiles import as_owner
from profd.daemon.windows import gdb, intarget
from profd.daemon.windows.intarget import Order
from profd.daemon.windows.request import WindowFailed, WindowRequest
from profd.daemon.windows.taking import Deadline, ExchangeFolder, meeting

SOURCE = "remote_exec"
TIMEOUT_S = 15.0
_FIRST = (3, 14)
_PROGRAM = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"


def helper_for(
    version: str, own: tuple[int, ...] = sys.version_info[:2], executable: str = sys.executable
) -> str | None:
    """Return an interpreter that can ask one of ``version`` (``major.minor``); None where there is none."""
    try:
        asked = tuple(map(int, version.split(".")[:2]))
    except ValueError:  # an interpreter of unknown version
        return None
    if asked < _FIRST:
        return None
    return executable if asked == tuple(own[:2]) else shutil.which(f"python{asked[0]}.{asked[1]}")


async def execute(helper: str, pid: int, script: Path, timeout_s: float = TIMEOUT_S) -> None:
    """Have a process execute a script, a path as the process sees it; raises WindowFailed where it could not."""
    rights = as_owner(pid)
    failure = await _ask(helper, pid, script, timeout_s, rights)
    if failure and rights:  # Yama may let nobody but root
        failure = await _ask(helper, pid, script, timeout_s, {})
    if failure:
        raise WindowFailed(
            f"sys.remote_exec could not reach process {pid} ({failure[:200]})",
            "restart the command with `profd run --torch-window -- CMD`",
        )


async def _ask(helper: str, pid: int, script: Path, timeout_s: float, rights: dict[str, Any]) -> str:
    """Ask with these rights, and return why that failed; nothing where it did not."""
    try:
        process = await asyncio.create_subprocess_exec(
            helper, "-I", "-c", _PROGRAM, str(pid), str(script),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            **rights,
        )  # fmt: skip
    except OSError as error:
        return str(error)
    try:
        _, said = await asyncio.wait_for(process.communicate(), timeout_s)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()
        raise WindowFailed(f"sys.remote_exec was not done with process {pid} within {timeout_s:.0f} s") from None
    lines = said.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
    return lines[-1] if process.returncode else ""


SAFE_POINT_TIMEOUT_S = 30.0
"""A main thread that waits in C code, for a GPU say, comes to no safe point meanwhile."""
STEPS_TIMEOUT_S = 120.0
_WRITING_S = 60.0
_SCRIPT = "window.py"
_SOURCE = Path(intarget.__file__).read_text()
_BOOTSTRAP = """\
try:
    __import__("threading").Thread(
        name="profd-window",
        target=__import__("builtins").exec,
        args=(SOURCE, {"__name__": "profd_window"}),
        daemon=True,
    ).start()
except Exception:
    pass
except BaseException:
    __import__("ctypes").pythonapi.PyThreadState_SetAsyncExc(
        __import__("ctypes").c_ulong(__import__("threading").get_ident()),
        __import__("ctypes").py_object(__import__("sys").exc_info()[0]),
    )
"""
"""Runs in the namespace of the script itself, so it gives no name to anything."""


class Report(msgspec.Struct, frozen=True):
    """What the process says of its window."""

    error: str


class Injection:
    """The way to windows of processes that were not armed for them."""

    def __init__(self, helper: str | None, clock: Clock) -> None:
        """Use ``helper``, an interpreter that has ``sys.remote_exec`` for the process, or gdb where there is none."""
        self._helper = helper
        self._patience = Deadline(clock)

    @property
    def source(self) -> str:
        """How the text gets into the process."""
        return SOURCE if self._helper else gdb.SOURCE

    @contextlib.asynccontextmanager
    async def trace(self, identity: Identity, request: WindowRequest, asked_ns: int) -> AsyncIterator[int]:
        """Have a process take a window of itself, and give its trace as a descriptor; raises ProfdError."""
        with meeting(identity.pid) as place:
            await self._execute(identity.pid, order_of(request, place), place)
            await self._wait_for(identity, request, place)
            with place.opened(intarget.TRACE) as trace:
                yield trace

    async def _execute(self, pid: int, order: Order, place: ExchangeFolder) -> None:
        if self._helper is not None:
            place.write(_SCRIPT, text_of(order))
            await execute(self._helper, pid, place.there / _SCRIPT)
            return
        gdb.require()
        calls = gdb.find_calls(pid)
        text = gdb.lay_out(pid, lambda page, size: text_of(order._replace(page=page, page_bytes=size)))
        await gdb.execute(pid, text, calls)

    async def _wait_for(self, identity: Identity, request: WindowRequest, place: ExchangeFolder) -> None:
        """Wait until the process has reported; raises WindowFailed where that is a failure."""
        pid = identity.pid
        if not await self._patience.until(lambda: place.has(intarget.BEGUN), identity, SAFE_POINT_TIMEOUT_S):
            raise WindowFailed(
                f"process {pid} came to no safe point within {SAFE_POINT_TIMEOUT_S:.0f} s",
                "its main thread is in a call of C that lasts; try again later",
            )
        length_s = STEPS_TIMEOUT_S if request.seconds is None else request.seconds
        if not await self._patience.until(lambda: place.has(intarget.REPORT), identity, length_s + _WRITING_S):
            raise WindowFailed(f"process {pid} has not written its window within {length_s + _WRITING_S:.0f} s")
        if error := _read(place).error:
            raise WindowFailed(f"process {pid} took none ({error})")


def order_of(request: WindowRequest, place: ExchangeFolder) -> Order:
    """Return what a process is told of the window that is wanted."""
    return Order(
        folder=str(place.there),
        steps=request.steps,
        seconds=request.seconds,
        shapes=request.shapes,
        memory=request.memory,
        stacks=request.stacks,
        flops=request.flops,
        patience_s=STEPS_TIMEOUT_S,
    )


def text_of(order: Order) -> str:
    """Return the Python that has a process take a window, whichever names the process gives to other things.

    All that the thread it interrupts does is to start another; an exception that a signal raises meanwhile is raised
    there again.
    """
    source = f"{_SOURCE}\n\ntake({order!r})\n"
    return _BOOTSTRAP.replace("SOURCE", repr(source))


def _read(place: ExchangeFolder) -> Report:
    try:
        return msgspec.json.decode(place.read(intarget.REPORT), type=Report)
    except (OSError, msgspec.DecodeError) as error:
        raise WindowFailed(f"what the process reported cannot be read ({error})") from error
