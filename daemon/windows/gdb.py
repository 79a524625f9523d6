"""Has gdb make a running interpreter without remote execution run a text at its next safe point.

While gdb holds the process, two functions are called in it and nothing else: ``mmap`` for a page
that the text is written to, and ``Py_AddPendingCall`` to queue ``PyRun_SimpleString(page)``.
Neither takes memory from the heap or needs the GIL. gdb saves all registers around them, the vector
registers too, so gdb makes the calls. A gdb that cannot restore these (before 14, if the CPU has
AMX) fails on a program of profd's own first. Addresses are found before, so that no symbols are
read while the process is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from profd.daemon import processes
from profd.daemon.errors import MissingTool
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.processes import PAGE_BYTES
from profd.daemon.userfiles import as_owner
from profd.daemon.windows import symbols
from profd.daemon.windows.request import WindowFailed

SOURCE = "gdb"
TIMEOUT_S = 15.0
_GRACE_S = 3.0
_CALLED = ("mmap", "Py_AddPendingCall", "PyRun_SimpleString")
_READ_WRITE = 3
_PRIVATE_ANONYMOUS_AT = 0x100022  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
_SETTINGS = (
    "set auto-load off",
    "set debuginfod enabled off",
    "set auto-solib-add off",
    "set libthread-db-search-path /nonexistent",
    # Else it opens each of the hundreds of libraries of a torch process while that is stopped: 0.2
    # s and more.
    "set sysroot /nonexistent",
    "set confirm off",
    "set pagination off",
    # A call that is interrupted leaves no trace in the registers of the process.
    "set unwindonsignal on",
)
_PASSING = (
    "SIGALRM SIGCHLD SIGCONT SIGHUP SIGIO SIGPIPE SIGPROF SIGTERM SIGURG SIGUSR1 SIGUSR2 "
    "SIGVTALRM SIGWINCH"
)
"""Signals that reach the process as usual while gdb holds it, and stop nothing."""
_REHEARSAL = (
    "file /bin/sh",
    "set startup-with-shell off",
    "starti",
    "set $mxcsr = $mxcsr ^ 0x8000",
    "kill",
)
"""Changes a register in a program before its first instruction.

If the CPU has no $mxcsr, that is a variable of gdb.
"""
_REFUSED = re.compile(r"^ptrace: Operation not permitted", re.MULTILINE)
_AT_A_WORD = 'read go && exec "$@" </dev/null'
"""Waits for a line, then becomes gdb.

By then the process has the niceness and the OOM score that gdb needs.
"""
_REMEDY = "restart the command with `profd run --torch-window -- CMD`, which needs no gdb"
_ALLOW = (
    "become root, in a container give it --cap-add SYS_PTRACE, set "
    f"/proc/sys/kernel/yama/ptrace_scope to 0 if it is above, or {_REMEDY}"
)


class Text(NamedTuple):
    """A text and the memory for it: whole pages, which end with at least one NUL."""

    content: bytes
    page: int
    page_bytes: int


class CallAddresses(NamedTuple):
    """The addresses of the functions that gdb calls in a process."""

    map: int
    queue: int
    run: int


def require() -> str:
    if path := shutil.which("gdb"):
        return path
    what = "gdb, which starts the profiler in a process that runs, is not installed"
    raise MissingTool(what, f"install gdb, or {_REMEDY}")


def find_calls(pid: int) -> CallAddresses:
    """Return the addresses of the functions to call in a process; raises WindowFailed."""
    try:
        found = symbols.find(pid, _CALLED)
    except Unreadable as error:
        raise WindowFailed(
            f"the functions of process {pid} cannot be looked up: {error}", _ALLOW
        ) from error
    if missing := [name for name in _CALLED if name not in found]:
        raise WindowFailed(f"process {pid} has no {missing[0]} that can be found", _REMEDY)
    return CallAddresses(*(found[name] for name in _CALLED))


def lay_out(pid: int, write: Callable[[int, int], str]) -> Text:
    """Return a text and its place in a process, by ``write`` of address and length in bytes.

    Raises WindowFailed.
    """
    page = symbols.free_page(pid)
    # The numbers are part of the text, so its length is that with the widest possible numbers.
    longest = len(write((1 << 64) - 1, (1 << 32) - 1).encode())
    page_bytes = (longest // PAGE_BYTES + 1) * PAGE_BYTES
    return Text(write(page, page_bytes).encode(), page, page_bytes)


async def execute(pid: int, text: Text, calls: CallAddresses) -> None:
    """Have a process execute a text at its next safe point; raises MissingTool or WindowFailed."""
    program = require()
    status = processes.status(pid)
    if not status:
        raise WindowFailed(f"process {pid} cannot be looked at: it is gone")
    if (tracer := status.get("TracerPid", "0")) != "0":
        raise WindowFailed(
            f"process {pid} is being debugged by process {tracer}", "wait for it to let go"
        )
    if status["State"][0] in "Tt":
        raise WindowFailed(f"process {pid} is stopped", f"let it run on: kill -CONT {pid}")
    rights = as_owner(pid)
    await rehearse(program, rights)
    said = await _held(_run(program, pid, text, calls, rights))
    if rights and "profd " not in said:  # it did nothing: Yama may let nobody but root attach
        said = await _held(_run(program, pid, text, calls, {}))
    _check(pid, said, text.page)


def commands(pid: int, file: Path, text: Text, calls: CallAddresses) -> str:
    """Return the commands of gdb while it holds a process."""
    return f"""\
attach {pid}
set $page = ((long (*)(long, long, int, int, int, long)) {calls.map:#x})\
({text.page:#x}, {text.page_bytes}, {_READ_WRITE}, {_PRIVATE_ANONYMOUS_AT:#x}, -1, 0)
printf "profd page %lx\\n", $page
if $page == {text.page:#x}
restore {file} binary {text.page:#x}
set $queued = ((int (*)(long, long)) {calls.queue:#x})({calls.run:#x}, {text.page:#x})
printf "profd queued %d\\n", $queued
end
detach
"""


async def rehearse(program: str, rights: dict[str, Any]) -> None:
    """Raise WindowFailed if gdb cannot write registers: it could not restore those of a process.

    gdb 13 on a Xeon with AMX has room for 2,696 of the 11,008 bytes that the kernel wants back. It
    would make the call all the same, and then not restore the last registers: a system call that
    the stop interrupted could end with an error that no program knows.
    """
    steps = [word for step in _REHEARSAL for word in ("-ex", step)]
    process = await _start([*_gdb(program), *steps], rights, stdin=asyncio.subprocess.DEVNULL)
    try:
        said, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    except asyncio.TimeoutError:
        raise WindowFailed(
            f"gdb did not start a program of its own within {TIMEOUT_S:.0f} s", _REMEDY
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # the program that it holds ends with it
    if b"Couldn't write" in said:
        what = (
            "this gdb is too old for this CPU: it could not give back the registers of the process"
        )
        raise WindowFailed(what, f"install gdb 14 or newer, or {_REMEDY}")


async def _start(
    words: list[str], rights: dict[str, Any], stdin: int
) -> asyncio.subprocess.Process:
    """Start a program that has these rights and prints English.

    Its own Python finds nothing that is set for another one.
    """
    kept = {
        name: value
        for name, value in rights.get("env", os.environ).items()
        if not name.startswith("PYTHON")
    }
    options = {**rights, "env": {**kept, "LC_ALL": "C"}, "start_new_session": True}
    out, error = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    return await asyncio.create_subprocess_exec(
        *words, stdin=stdin, stdout=out, stderr=error, **options
    )


def _gdb(program: str) -> list[str]:
    """Return the command line of a gdb that reads no files of settings or symbols by itself."""
    settings = [word for setting in _SETTINGS for word in ("-iex", setting)]
    return [program, "-nx", "-batch", "-readnever", *settings]


async def _held(run: Coroutine[Any, Any, str]) -> str:
    """Return the output of gdb, and wait for its end even if this is canceled.

    gdb must let go of the process.
    """
    running = asyncio.ensure_future(run)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise


async def _run(
    program: str,
    pid: int,
    text: Text,
    calls: CallAddresses,
    rights: dict[str, Any],
) -> str:
    with TemporaryDirectory(prefix="profd-gdb-") as folder:
        page, script = Path(folder) / "page", Path(folder) / "script"
        page.write_bytes(text.content + b"\0")
        script.write_text(commands(pid, page, text, calls))
        for path, mode in ((page, 0o644), (script, 0o644), (Path(folder), 0o755)):
            path.chmod(mode)  # another user's gdb may read them; nothing in them is a secret
        opening = ["-ex", f"handle {_PASSING} nostop noprint pass", "-ex", f"file /proc/{pid}/exe"]
        words = ["/bin/sh", "-c", _AT_A_WORD, program, *_gdb(program), *opening, "-x", str(script)]
        process = await _start(words, rights, stdin=asyncio.subprocess.PIPE)
        with contextlib.suppress(OSError):  # not root, as most are
            # The process is held for as long as gdb waits for its turn.
            os.setpriority(os.PRIO_PROCESS, process.pid, -10)
        # A gdb that is killed in the middle of a call takes the process along.
        processes.spare(process.pid, pid)
        reading = asyncio.ensure_future(process.communicate(b"go\n"))
        try:
            said, _ = await asyncio.wait_for(asyncio.shield(reading), TIMEOUT_S)
        except asyncio.TimeoutError:
            await _end(process, reading, pid)
            raise WindowFailed(
                f"gdb was not done with process {pid} within {TIMEOUT_S:.0f} s", _REMEDY
            ) from None
    return said.decode(errors="replace")


async def _end(
    process: asyncio.subprocess.Process, reading: asyncio.Future[tuple[bytes, bytes]], pid: int
) -> None:
    """End gdb, the gentlest way first, and make sure that the process runs on.

    Interrupted, gdb takes back the call that it waits for; terminated, it lets go of the process.
    Killed, the kernel lets go, which is safe at any time but in the middle of a call: the last
    resort.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            process.send_signal(number)
        done, _ = await asyncio.wait({reading}, timeout=_GRACE_S)
        if done:
            break
    if processes.state(pid) == "T":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGCONT)


def _check(pid: int, said: str, page: int) -> None:
    """Raise WindowFailed if gdb did not queue the call, by its output."""
    if "profd queued 0" in said:
        return
    if "profd queued" in said:
        raise WindowFailed(f"the queue of calls of process {pid} is full", "try again")
    if _REFUSED.search(said):
        raise WindowFailed(f"the system does not let gdb attach to process {pid}", _ALLOW)
    given = re.search(r"^profd page ([0-9a-f]+)", said, re.MULTILINE)
    if given and int(given[1], 16) != page:
        raise WindowFailed(f"process {pid} was given no memory at {page:#x}", "try again")
    lines = [
        line
        for line in said.splitlines()
        if line.strip() and not line.startswith(("warning:", "["))
    ]
    raise WindowFailed(
        f"gdb could not do it ({lines[-1][:200] if lines else 'it said nothing'})", _REMEDY
    )
