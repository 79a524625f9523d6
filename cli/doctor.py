"""`profd doctor`: what works here, and how to mend what does not.

A check tries the real thing if possible: py-spy actually reads a process.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import metadata
from pathlib import Path

import click
import msgspec

from profd.cli.console import line_cells, print_json
from profd.cli.options import RecordingOptions, json_option
from profd.daemon import paths, processes
from profd.daemon.clock import Clock
from profd.daemon.errors import ExitCode, ProfdError
from profd.daemon.gpu.devices import GpuNames
from profd.daemon.gpu.nvml import explain
from profd.daemon.gpu.nvmlsource import NvmlSource
from profd.daemon.gpu.questions import Questions
from profd.daemon.hangs.knownhangs import known_hangs, versions_of
from profd.daemon.installation import install_command
from profd.daemon.launch.terminal import can_move_cursor
from profd.daemon.render.plaintext import Paragraph, joined
from profd.daemon.session.session import CLOSING_S, start_session
from profd.daemon.stacks.pyspy import KNOWN_VERSIONS, find_py_spy, version_of
from profd.daemon.store.writer import LEFT_FREE_BYTES
from profd.daemon.tree.attachable import PYTHON_VERSIONS, TORCH_LIBRARY, System, check_attachable
from profd.daemon.units import size

# As the launcher has its script do: Yama then lets this process and its descendants, including
# py-spy, read it.
_SAMPLE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(os.getppid()), 0, 0, 0)
print("ready", flush=True)
sys.stdin.read()
"""
_LEAST_FREE_BYTES = 50 << 20
_LEAST_SQLITE = (3, 22, 0)
_OF_THE_MACHINE = ("stat", "meminfo", "loadavg", "diskstats", "sys/kernel")
_KINETO = "KINETO_IPC_SOCKET_DIR"


class CheckResult(Enum):
    """The result of a check: only FAILED stops profd from its main job."""

    PASSED = "passed"
    NOTE = "note"
    FAILED = "failed"


class Check(msgspec.Struct, frozen=True):
    """The outcome of a check.

    ``remedy`` is empty if nothing is wrong. ``exit_code`` is the check's own code if it failed.
    """

    name: str
    verdict: CheckResult
    found: str
    remedy: str = ""
    exit_code: ExitCode | None = None


PASSED, NOTE, FAILED = CheckResult
Answer = (
    tuple[CheckResult, str] | tuple[CheckResult, str, str] | tuple[CheckResult, str, str, ExitCode]
)
"""What a check prints after its name."""
_MARKS = {PASSED: ("✓", "green"), NOTE: ("!", "yellow"), FAILED: ("✗", "red")}
_LEAST_SIZE = os.terminal_size((80, 24))


@click.command()
@click.argument("pid", type=click.IntRange(min=1), required=False, metavar="[PID]")
@json_option
def command(pid: int | None, as_json: bool) -> int:
    """Check what profd needs on this machine, and with PID whether that process can be attached to.

    ✓ works, ! is worth knowing, ✗ keeps profd from its main job: then the exit code is not 0.
    """
    checks = [*examine(pid), checked("terminal", check_terminal)]
    if as_json:
        print_json(checks)
    else:
        width = max(len(check.name) for check in checks)
        cells = line_cells(sys.stdout)
        for check in checks:
            mark, color = _MARKS[check.verdict]
            found = Paragraph(check.found, f"{mark} {check.name.ljust(width)}  ")
            click.echo(click.style(mark, fg=color) + joined([found], cells).removeprefix(mark))
            if check.remedy:
                remedy = Paragraph(check.remedy, f"  {' ' * width}  → ")
                click.echo(joined([remedy], cells))
    # The check of the given process comes last: its code is the most specific one.
    failed = [check.exit_code or ExitCode.FAILURE for check in checks if check.verdict is FAILED]
    return failed[-1] if failed else ExitCode.OK


def examine(pid: int | None = None) -> list[Check]:
    """Check this machine, and with ``pid`` whether that process can be attached to."""
    system = System()
    checks = [
        checked("kernel", check_kernel),
        checked("Python", check_python),
        checked("py-spy", check_py_spy),
        checked("reading stacks", check_reading, system),
        checked("rights", check_attaching, system),
        checked("runs folder", check_runs_folder),
        checked("session", check_session),
        checked("control sockets", lambda: (PASSED, str(paths.runtime_folder()))),
        checked("GPUs", check_gpus, system),
        checked("gdb", check_gdb),
        checked("known hangs", check_known_hangs, pid),
    ]
    if pid is None:
        return [*checks, checked("torch windows", check_torch)]
    return [
        *checks,
        checked("torch windows", check_torch_of, pid),
        checked(f"pid {pid}", check_process, pid, system),
    ]


def checked(name: str, check: Callable[..., Answer], *asked: object) -> Check:
    """Return the outcome of a check; an exception counts as a failure."""
    try:
        return Check(name, *check(*asked))
    except ProfdError as error:
        return Check(name, FAILED, error.what, error.remedy, error.exit_code)


def check_terminal() -> Answer:
    if not sys.stdout.isatty():
        return NOTE, "stdout is no terminal", "the dashboard needs one; `--headless` does not"
    size = shutil.get_terminal_size()
    encoding = (sys.stdout.encoding or "").lower()
    colors = "256 colors" if "256color" in os.environ.get("TERM", "") else "16 colors"
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        colors = "16 million colors"
    if os.environ.get("NO_COLOR"):
        colors = "no colors (NO_COLOR)"
    found = f"{size.columns} by {size.lines}, {encoding}, {colors}"
    if not can_move_cursor():
        return (
            NOTE,
            f"TERM is {os.environ.get('TERM')}: it cannot move its cursor",
            "the dashboard needs one that can",
        )
    if "utf" not in encoding:
        return NOTE, found, "set a UTF-8 locale, as in LANG=C.UTF-8"
    if size < _LEAST_SIZE:
        return NOTE, found, f"make it at least {_LEAST_SIZE.columns} by {_LEAST_SIZE.lines}"
    return PASSED, found


def check_kernel() -> Answer:
    found = f"{platform.system()} {platform.release()}"
    if platform.system() != "Linux":
        return FAILED, found, "profd works on Linux alone"
    if not (processes.PROC / "self" / "stat").exists():
        return FAILED, f"{found}, /proc is missing", "mount -t proc proc /proc"
    if not (processes.PROC / "self" / "task" / str(os.getpid()) / "children").exists():
        remedy = "use a kernel with CONFIG_PROC_CHILDREN, as all distributions have"
        return FAILED, f"{found}, /proc does not name the children of a process", remedy
    if missing := [name for name in _OF_THE_MACHINE if not (processes.PROC / name).exists()]:
        remedy = (
            "what profd reads there of the machine is not shown; mount /proc without subset=pid "
            "for it"
        )
        return NOTE, f"{found}, /proc lacks {', '.join(missing)}", remedy
    return PASSED, f"{found}, /proc complete"


def check_python() -> Answer:
    """Check the Python and the SQLite that profd itself runs on; its targets may run on others."""
    found = f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < _LEAST_SQLITE:
        return (
            FAILED,
            found,
            "install profd into a Python with SQLite 3.22 or later, which readers of a "
            "live run need",
        )
    return PASSED, f"{found}, runs profd"


def check_py_spy() -> Answer:
    path = find_py_spy()
    try:
        version = version_of(path)
    except OSError as error:
        return (
            FAILED,
            f"{path} does not run ({error})",
            f"install it again: {install_command('--force-reinstall', 'py-spy')}",
        )
    least, beyond = KNOWN_VERSIONS
    if not least <= tuple(map(int, re.findall(r"\d+", version))) < beyond:
        named = f"py-spy {version or 'without a version'} at {path}"
        found = f"{named}, which this profd was not tried with: shares may be wrong unseen"
        first, after = (".".join(map(str, bound)) for bound in KNOWN_VERSIONS)
        return NOTE, found, f"install a py-spy from {first} on, before {after}, or a newer profd"
    return PASSED, f"py-spy {version} at {path}, reads {PYTHON_VERSIONS}"


def check_reading(system: System) -> Answer:
    """Check, by doing it, that py-spy reads a process of ours that it did not start."""
    with _sample() as pid:
        check_attachable(pid, system)
    return PASSED, "py-spy read the stacks of a Python process, without stopping it"


def check_session() -> Answer:
    """Check, by doing it, that a session starts, and closes its run when it is asked to end."""
    with tempfile.TemporaryDirectory(prefix="profd-") as folder, _sample() as pid:
        recording = RecordingOptions(name="doctor", output=Path(folder) / "doctor.profd")
        session = start_session(
            recording.session(("doctor",), "attached", pid, processes.start_ticks(pid))
        )
        session.end()
        if not session.wait_closed(CLOSING_S):
            return (
                FAILED,
                "a session started, and did not close its run",
                f"see {paths.runtime_folder()}",
            )
    return PASSED, "started, and closed its run"


@contextlib.contextmanager
def _sample() -> Iterator[int]:
    """Give the PID of a Python process that waits."""
    words, pipe = [sys.executable, "-I", "-c", _SAMPLE], subprocess.PIPE
    # On exit the context closes the stdin of the process, which ends it, and waits for it.
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


def check_attaching(system: System) -> Answer:
    where = "in a container, " if system.in_container() else ""
    if system.may_read_all():
        return PASSED, f"{where}CAP_SYS_PTRACE: everyone's processes can be attached to"
    scope = system.ptrace_scope()
    if scope == 0:
        return PASSED, f"{where}your own processes can be attached to"
    works = (
        "`profd run` reads the script, but not the workers that it forks"
        if scope == 1
        else "nothing can be read"
    )
    remedy = "sudo sysctl kernel.yama.ptrace_scope=0, or run profd as root"
    return NOTE, f"{where}kernel.yama.ptrace_scope is {scope}: {works}", remedy


def check_runs_folder() -> Answer:
    """Check that run files can be written: rights, room, and the kind of file system."""
    folder = paths.runs_folder()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    choose = "set PROFD_HOME to another folder, or use -o FILE"
    if not os.access(there, os.W_OK | os.X_OK):
        return FAILED, f"{there} is not writable for you", choose, ExitCode.UNWRITABLE_OUTPUT
    free_bytes = shutil.disk_usage(there).free
    found = f"{folder}, {size(free_bytes)} free"
    if free_bytes < _LEAST_FREE_BYTES:
        return FAILED, found, f"free some space, or {choose}", ExitCode.UNWRITABLE_OUTPUT
    if free_bytes < LEFT_FREE_BYTES:
        return NOTE, found, f"free some space, or {choose}"
    if paths.is_on_network(there.resolve()):
        remedy = (
            "live runs are written to local disk and moved here at the end; to avoid that, "
            f"{choose}"
        )
        return NOTE, f"{found}, on a network file system", remedy
    return PASSED, found


def check_gpus(system: System) -> Answer:
    """Check which GPUs and which metrics the driver has; no GPU is no failure."""
    clock = Clock()
    nvml = NvmlSource(clock, GpuNames())
    try:
        gpus = nvml.gpus() if nvml.open() else []
        if nvml.failure is not None:
            unavailable = explain(
                nvml.failure, nvml.failure_text, in_container=system.in_container()
            )
            return NOTE, unavailable.what, unavailable.remedy
        whole = [gpu for gpu in gpus if gpu.parent is None]
        if not whole:
            return (
                NOTE,
                "a driver, but no GPU that may be used",
                "see whether `nvidia-smi` lists any",
            )
        version = nvml.driver_version() or "of unknown version"
        gpm = (
            "with GPM metrics"
            if Questions(nvml, whole[0], clock).ask(nvml.has_activity)
            else "without GPM metrics"
        )
        return (
            PASSED,
            f"{len(whole)}: {', '.join(gpu.model for gpu in whole)}; driver {version}, {gpm}",
        )
    finally:
        nvml.close()


def check_gdb() -> Answer:
    """Check for gdb, which can open a torch.profiler window in an unprepared process."""
    if path := shutil.which("gdb"):
        return PASSED, path
    remedy = (
        "windows into running processes need it on Python before 3.14: install gdb; all else "
        "works without it"
    )
    return NOTE, "not installed", remedy


def check_torch() -> Answer:
    """Check for a torch beside profd whose Kineto takes windows on demand; it is not imported."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        remedy = "nothing is needed here: `profd doctor PID` looks at the torch of a process"
        return NOTE, "no torch is installed beside profd", remedy
    found = f"torch {version} beside profd"
    if tuple(int(word) for word in re.findall(r"\d+", version)[:2]) < (2, 0):
        # Since this version, an optimizer's step tells Kineto that a step is over.
        return NOTE, found, "windows by step need torch 2.0 or later; all else works without"
    return PASSED, f"{found}: `profd run --torch-window` can ask its Kineto"


def check_torch_of(pid: int) -> Answer:
    """Check whether a process has torch, and a Kineto that takes windows on demand.

    Kineto does that only if the process was launched for it.
    """
    maps = processes.maps(pid)
    if not maps:
        return NOTE, f"unknown: pid {pid} does not show what it has loaded"
    if TORCH_LIBRARY not in maps:
        return NOTE, f"pid {pid} has not loaded torch", "ask again once it has"
    folder = processes.environment(pid, frozenset({_KINETO})).get(_KINETO, "")
    if folder.startswith("/tmp/profd-"):
        return PASSED, f"pid {pid} was launched with --torch-window"
    remedy = (
        "launch it with `profd run --torch-window`, or let profd put code into it: `profd window "
        "--inject`"
    )
    return NOTE, f"pid {pid} was launched without --torch-window", remedy


def check_known_hangs(pid: int | None) -> Answer:
    """Check the versions of the driver, and of what a process has loaded."""
    versions = versions_of(pid)
    if found := known_hangs(versions):
        return NOTE, "; ".join(found), "run another version"
    named = ", ".join(map(" ".join, versions.items()))
    return PASSED, f"none of {named}" if named else "`profd doctor PID` looks at its versions"


def check_process(pid: int, system: System) -> Answer:
    place = system.place(pid).words()
    unread = check_attachable(pid, system)
    if unread:
        return NOTE, unread
    return PASSED, f"can be attached to: profd attach {pid}" + (
        f" (it runs in {place})" if place else ""
    )
