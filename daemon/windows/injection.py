"""Takes windows by executing code in a running process: by gdb, or by Python's remote execution.

This happens only if the user asked for it by name. ``sys.remote_exec`` of Python 3.14 works
between interpreters of the same minor version, so a helper of the target's version calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
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
from profd.daemon.windows.taking import ExchangeFolder, meeting, wait_until

SOURCE = "remote_exec"
SAFE_POINT_TIMEOUT_S = 30.0
"""A main thread that waits in C code, for a GPU for example, comes to no safe point meanwhile."""
STEPS_TIMEOUT_S = 120.0
_PROGRAM = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"


def helper_for(version: str) -> str | None:
    """Return an interpreter that can call one of ``version`` (``major.minor``).

    None if there is none.
    """
    try:
        target = tuple(map(int, version.split(".")[:2]))
    except ValueError:  # an interpreter of unknown version
        return None
    if target < (3, 14):
        return None
    is_own = target == sys.version_info[:2]
    return sys.executable if is_own else shutil.which(f"python{target[0]}.{target[1]}")


async def execute(helper: str, pid: int, script: Path) -> None:
    """Have a process execute a script, a path as the process sees it.

    Raises WindowFailed if it could not.
    """
    rights = as_owner(pid)
    failure = await _try(helper, pid, script, rights)
    if failure and rights:  # Yama may let nobody but root
        failure = await _try(helper, pid, script, {})
    if failure:
        what = f"sys.remote_exec could not reach process {pid} ({failure[:200]})"
        raise WindowFailed(what, "restart the command with `profd run --torch-window -- CMD`")


async def _try(helper: str, pid: int, script: Path, rights: dict[str, Any]) -> str:
    """Run the helper with these rights, and return why that failed; nothing if it did not."""
    words, null, pipe = (
        [helper, "-I", "-c", _PROGRAM, str(pid), str(script)],
        subprocess.DEVNULL,
        subprocess.PIPE,
    )
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=null, stdout=null, stderr=pipe, **rights
        )
    except OSError as error:
        return str(error)
    try:
        _, said = await asyncio.wait_for(process.communicate(), gdb.TIMEOUT_S)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()
        raise WindowFailed(
            f"sys.remote_exec was not done with process {pid} within {gdb.TIMEOUT_S:.0f} s"
        ) from None
    lines = said.decode(errors="replace").strip().splitlines() or [
        f"exit code {process.returncode}"
    ]
    return lines[-1] if process.returncode else ""


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


class Injection:
    """The way to windows of processes that were not armed for them."""

    def __init__(self, helper: str | None, clock: Clock) -> None:
        """Use ``helper``, or gdb if there is none.

        ``helper`` is an interpreter that has ``sys.remote_exec`` for the process.
        """
        self._helper, self._clock = helper, clock
        self.source = SOURCE if helper else gdb.SOURCE

    @contextlib.asynccontextmanager
    async def trace(
        self, identity: Identity, request: WindowRequest, asked_ns: int
    ) -> AsyncIterator[int]:
        """Have a process take a window of itself, and give its trace as a descriptor.

        Raises ProfdError.
        """
        pid = identity.pid
        with meeting(pid) as place:
            await self._execute(pid, order_of(request, place), place)
            if not await wait_until(
                lambda: place.has(intarget.BEGUN), identity, self._clock, SAFE_POINT_TIMEOUT_S
            ):
                what = f"process {pid} came to no safe point within {SAFE_POINT_TIMEOUT_S:.0f} s"
                raise WindowFailed(
                    what, "its main thread is in a call of C that lasts; try again later"
                )
            taking_s = STEPS_TIMEOUT_S if request.seconds is None else request.seconds
            timeout_s = taking_s + 60.0  # to write it
            if not await wait_until(
                lambda: place.has(intarget.REPORT), identity, self._clock, timeout_s
            ):
                raise WindowFailed(
                    f"process {pid} has not written its window within {timeout_s:.0f} s"
                )
            try:
                with place.opened(intarget.REPORT) as report:
                    said = os.read(report, 1 << 16)  # the process may have made it any length
                error = msgspec.json.decode(said, type=dict[str, str])["error"]
            except (OSError, KeyError, msgspec.DecodeError) as failure:
                raise WindowFailed(
                    f"what the process reported cannot be read ({failure})"
                ) from failure
            if error:
                raise WindowFailed(f"process {pid} took none ({error})")
            with place.opened(intarget.TRACE) as trace:
                yield trace

    async def _execute(self, pid: int, order: Order, place: ExchangeFolder) -> None:
        if self._helper is not None:
            script = place.there / "window.py"
            place.files.write(script, text_of(order).encode())
            await execute(self._helper, pid, script)
            return
        gdb.require()
        calls = gdb.find_calls(pid)
        text = gdb.lay_out(
            pid, lambda page, size: text_of(order._replace(page=page, page_bytes=size))
        )
        await gdb.execute(pid, text, calls)


def order_of(request: WindowRequest, place: ExchangeFolder) -> Order:
    """Return the order for a process: the request, and the folder for the trace."""
    asked = {
        name: getattr(request, name) for name in ("steps", "seconds", "shapes", "memory", "stacks")
    }
    return Order(folder=str(place.there), patience_s=STEPS_TIMEOUT_S, **asked)


def text_of(order: Order) -> str:
    """Return the Python text that has a process take a window in a thread of its own.

    It works whatever names the process has.
    """
    return _BOOTSTRAP.replace("SOURCE", repr(f"{_SOURCE}\n\ntake({order!r})\n"))
