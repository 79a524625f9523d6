"""`profd doctor`: what works here, and how to mend what does not.

A check tries the thing itself where it can: py-spy really reads a process.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
from enum import Enum
from importlib import metadata

import click
import msgspec

from profd.cli.console import print_json
from profd.cli.options import json_option
from profd.daemon import paths, processes
from profd.daemon.clock import Clock
from profd.daemon.errors import ExitCode, MissingTool, OutputUnwritable, ProfdError
from profd.daemon.gpu.devices import GpuNames, list_gpus, text_of
from profd.daemon.gpu.nvml import Nvml, explain
from profd.daemon.render.plaintext import visible
from profd.daemon.stacks.pyspy import KNOWN_VERSIONS, find_py_spy
from profd.daemon.tree.attachable import PYTHON_VERSIONS, TORCH_LIBRARY, System, check_attachable
from profd.daemon.units import size

# As the launcher has its script do: Yama then lets this process and its descendants, py-spy among them, read it.
_SAMPLE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(os.getppid()), 0, 0, 0)
print("ready", flush=True)
sys.stdin.read()
"""
_LEAST_FREE_BYTES = 50 << 20
_WANTED_FREE_BYTES = 1 << 30
_LEAST_SQLITE = (3, 22, 0)
_KINETO = "KINETO_USE_DAEMON"


class Verdict(Enum):
    """The result of a check: only FAILED stops profd from its main job."""

    PASSED = "passed"
    NOTE = "note"
    FAILED = "failed"


class Check(msgspec.Struct, frozen=True):
    """A check; ``remedy`` is empty where nothing is amiss, ``exit_code`` its own where it failed."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""
    exit_code: ExitCode | None = None


_MARKS = {Verdict.PASSED: ("✓", "green"), Verdict.NOTE: ("!", "yellow"), Verdict.FAILED: ("✗", "red")}
_LEAST_SIZE = os.terminal_size((80, 24))


@click.command()
@click.argument("pid", type=click.IntRange(min=1), required=False, metavar="[PID]")
@json_option
def command(pid: int | None, as_json: bool) -> int:
    """Check what profd needs on this machine, and with PID whether that process can be attached to.

    ✓ works, ! is worth knowing, ✗ keeps profd from its main job: then the exit code is not 0.
    """
    checks = [*examine(pid), check_terminal()]
    if as_json:
        print_json(checks)
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark, color = _MARKS[check.verdict]
            click.echo(f"{click.style(mark, fg=color)} {check.name.ljust(width)}  {visible(check.found)}")
            if check.remedy:
                click.echo(f"  {' ' * width}  → {visible(check.remedy)}")
    # The process asked about comes last: its own code is the most telling one.
    failed = [check.exit_code or ExitCode.FAILURE for check in checks if check.verdict is Verdict.FAILED]
    return failed[-1] if failed else ExitCode.OK


def check_terminal() -> Check:
    if not sys.stdout.isatty():
        remedy = "the dashboard needs one; `--headless` does not"
        return Check("terminal", Verdict.NOTE, "stdout is no terminal", remedy)
    size = shutil.get_terminal_size()
    encoding = (sys.stdout.encoding or "").lower()
    colors = "256 colors" if "256color" in os.environ.get("TERM", "") else "16 colors"
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        colors = "16 million colors"
    if os.environ.get("NO_COLOR"):
        colors = "no colors (NO_COLOR)"
    found = f"{size.columns} by {size.lines}, {encoding}, {colors}"
    if "utf" not in encoding:
        return Check("terminal", Verdict.NOTE, found, "set a UTF-8 locale, as in LANG=C.UTF-8")
    if size < _LEAST_SIZE:
        return Check("terminal", Verdict.NOTE, found, f"make it at least {_LEAST_SIZE.columns} by {_LEAST_SIZE.lines}")
    return Check("terminal", Verdict.PASSED, found)


def examine(pid: int | None = None, system: System | None = None) -> list[Check]:
    """Check this machine, and with ``pid`` whether that process can be attached to."""
    system = system or System()
    checks = [
        check_kernel(),
        check_python(),
        check_py_spy(),
        check_reading(system),
        check_attaching(system),
        check_runs_folder(),
        check_sockets(),
        check_gpus(system),
        check_gdb(),
        check_torch() if pid is None else check_torch_of(pid),
    ]
    return checks if pid is None else [*checks, check_process(pid, system)]


def check_kernel() -> Check:
    found = f"{platform.system()} {platform.release()}"
    if platform.system() != "Linux":
        return Check("kernel", Verdict.FAILED, found, "profd works on Linux alone")
    if not (processes.PROC / "self" / "stat").exists():
        return Check("kernel", Verdict.FAILED, f"{found}, /proc is missing", "mount -t proc proc /proc")
    if not (processes.PROC / "self" / "task" / str(os.getpid()) / "children").exists():
        remedy = "use a kernel with CONFIG_PROC_CHILDREN, as all distributions have"
        return Check("kernel", Verdict.FAILED, f"{found}, /proc does not name the children of a process", remedy)
    return Check("kernel", Verdict.PASSED, f"{found}, /proc complete")


def check_python() -> Check:
    """Check the Python and the SQLite that profd itself runs on; its targets may run on others."""
    found = f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < _LEAST_SQLITE:
        remedy = "install profd into a Python with SQLite 3.22 or later, which readers of a live run need"
        return Check("Python", Verdict.FAILED, found, remedy)
    return Check("Python", Verdict.PASSED, f"{found}, runs profd")


def check_py_spy() -> Check:
    try:
        path = find_py_spy()
    except MissingTool as error:
        return _failed("py-spy", error)
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"{path} does not run ({error})"
        return Check("py-spy", Verdict.FAILED, reason, "install it again: pip install --force-reinstall py-spy")
    least, beyond = KNOWN_VERSIONS
    version = tuple(map(int, re.findall(r"\d+", said)))
    if not least <= version < beyond:
        found = f"{said or 'no version'} at {path}, which this profd was not tried with: shares may be wrong unseen"
        first, after = (".".join(map(str, bound)) for bound in KNOWN_VERSIONS)
        remedy = f"install a py-spy from {first} on, before {after}, or a newer profd"
        return Check("py-spy", Verdict.NOTE, found, remedy)
    return Check("py-spy", Verdict.PASSED, f"{said} at {path}, reads {PYTHON_VERSIONS}")


def check_reading(system: System) -> Check:
    """Check, by doing it, that py-spy reads a process of ours that it did not start."""
    words, pipe = [sys.executable, "-I", "-c", _SAMPLE], subprocess.PIPE
    # Leaving the context closes its stdin, which ends it, and waits for it.
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            check_attachable(process.pid, system)
        except ProfdError as error:
            return _failed("reading stacks", error)
    return Check("reading stacks", Verdict.PASSED, "py-spy read the stacks of a Python process, without stopping it")


def check_attaching(system: System) -> Check:
    where = "in a container, " if system.in_container() else ""
    if system.may_read_all():
        return Check("rights", Verdict.PASSED, f"{where}CAP_SYS_PTRACE: everyone's processes can be attached to")
    scope = system.ptrace_scope()
    if scope == 0:
        return Check("rights", Verdict.PASSED, f"{where}your own processes can be attached to")
    works = "`profd run` reads the script, but not the workers that it forks" if scope == 1 else "nothing can be read"
    remedy = "sudo sysctl kernel.yama.ptrace_scope=0, or run profd as root"
    return Check("rights", Verdict.NOTE, f"{where}kernel.yama.ptrace_scope is {scope}: {works}", remedy)


def check_runs_folder() -> Check:
    """Check that run files can be written: rights, room, and the kind of file system."""
    folder = paths.runs_folder()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    choose = "set PROFD_HOME to another folder, or use -o FILE"
    if not os.access(there, os.W_OK | os.X_OK):
        code = ExitCode.UNWRITABLE_OUTPUT
        return Check("runs folder", Verdict.FAILED, f"{there} is not writable for you", choose, code)
    free_bytes = shutil.disk_usage(there).free
    found = f"{folder}, {size(free_bytes)} free"
    if free_bytes < _LEAST_FREE_BYTES:
        return Check("runs folder", Verdict.FAILED, found, f"free some space, or {choose}", ExitCode.UNWRITABLE_OUTPUT)
    if free_bytes < _WANTED_FREE_BYTES:
        return Check("runs folder", Verdict.NOTE, found, f"free some space, or {choose}")
    if paths.is_on_network(there.resolve()):
        remedy = f"live runs are written to local disk and moved here at the end; to avoid that, {choose}"
        return Check("runs folder", Verdict.NOTE, f"{found}, on a network file system", remedy)
    return Check("runs folder", Verdict.PASSED, found)


def check_sockets() -> Check:
    try:
        return Check("control sockets", Verdict.PASSED, str(paths.runtime_folder()))
    except OutputUnwritable as error:
        return _failed("control sockets", error)


def check_gpus(system: System) -> Check:
    """Check which GPUs the driver has, and which of its metrics; none is no failure."""
    nvml = Nvml(Clock())
    try:
        gpus = list_gpus(nvml, GpuNames()) if nvml.open() else []
        if nvml.failure is not None:
            unavailable = explain(nvml.failure, nvml.failure_text, in_container=system.in_container())
            return Check("GPUs", Verdict.NOTE, unavailable.what, unavailable.remedy)
        whole = [gpu for gpu in gpus if gpu.parent is None]
        if not whole:
            remedy = "see whether `nvidia-smi` lists any"
            return Check("GPUs", Verdict.NOTE, "a driver, but no GPU that may be used", remedy)
        version = text_of(nvml.ask_driver("nvmlSystemGetDriverVersion")) or "of unknown version"
        support = nvml.ask(whole[0].handle, "nvmlGpmQueryDeviceSupport")
        gpm = "with GPM metrics" if support is not None and support.isSupportedDevice else "without GPM metrics"
        models = ", ".join(gpu.model for gpu in whole)
        return Check("GPUs", Verdict.PASSED, f"{len(whole)}: {models}; driver {version}, {gpm}")
    finally:
        nvml.close()


def check_gdb() -> Check:
    """Check for gdb, by which a torch.profiler window can be opened in a process that was not prepared for it."""
    path = shutil.which("gdb")
    if path:
        return Check("gdb", Verdict.PASSED, path)
    remedy = "windows into running processes need it on Python before 3.14: install gdb; all else works without it"
    return Check("gdb", Verdict.NOTE, "not installed", remedy)


def check_torch() -> Check:
    """Check for a torch beside profd whose Kineto takes windows on demand; it is not imported."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        remedy = "nothing is needed here: `profd doctor PID` looks at the torch of a process"
        return Check("torch windows", Verdict.NOTE, "no torch is installed beside profd", remedy)
    found = f"torch {version} beside profd"
    if tuple(int(word) for word in re.findall(r"\d+", version)[:2]) < (2, 0):
        # From then on an optimizer's step tells Kineto that a step is over.
        remedy = "windows by step need torch 2.0 or later; all else works without"
        return Check("torch windows", Verdict.NOTE, found, remedy)
    return Check("torch windows", Verdict.PASSED, f"{found}: `profd run --torch-window` can ask its Kineto")


def check_torch_of(pid: int) -> Check:
    """Check whether a process has torch, and was launched so that its Kineto takes windows on demand."""
    maps = processes.maps(pid)
    if not maps:
        return Check("torch windows", Verdict.NOTE, f"pid {pid} does not show what it has loaded", "see the last line")
    if TORCH_LIBRARY not in maps:
        return Check("torch windows", Verdict.NOTE, f"pid {pid} has not loaded torch", "ask again once it has")
    if processes.environment(pid, frozenset({_KINETO})).get(_KINETO) == "1":
        return Check("torch windows", Verdict.PASSED, f"pid {pid} was launched with {_KINETO}=1")
    remedy = "launch it with `profd run --torch-window`, or let profd put code into it: `profd window --inject`"
    return Check("torch windows", Verdict.NOTE, f"pid {pid} was launched without {_KINETO}=1", remedy)


def check_process(pid: int, system: System) -> Check:
    try:
        check_attachable(pid, system)
    except ProfdError as error:
        return _failed(f"pid {pid}", error)
    return Check(f"pid {pid}", Verdict.PASSED, f"can be attached to: profd attach {pid}")


def _failed(name: str, error: ProfdError) -> Check:
    return Check(name, Verdict.FAILED, error.what, error.remedy, error.exit_code)
