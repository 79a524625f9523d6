"""Find the running training processes, and whether a process can be attached to.

If it cannot, say why.

The check asks cheap and certain questions first, and lets py-spy have the last word. All that it
asks the system is in ``System``, so that tests can try every reason.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from profd.daemon import errors, processes
from profd.daemon.boundedreads import BoundedReads, Unread
from profd.daemon.containers import ProcessPlace
from profd.daemon.errors import ProfdError
from profd.daemon.installation import install_command
from profd.daemon.naming import is_profd
from profd.daemon.rights import Credentials, Rights
from profd.daemon.secrets import mask_command
from profd.daemon.stacks.dump import DumpFailed, take_dump
from profd.daemon.stacks.pyspy import read_cost_s
from profd.daemon.tree.unread import Reason, why_unread

LOOK_S = 0.5
"""The most CPU time that all reads of processes take when they are listed.

The reads of one user's processes take at most half of it.
"""
_MOST_CPU_S = 0.1
TORCH_LIBRARY = "/libtorch"
"""Appears in the maps of a process that has loaded PyTorch."""
_OLDEST, _NEWEST = (3, 8), (3, 15)
PYTHON_VERSIONS = f"CPython {_OLDEST[0]}.{_OLDEST[1]} to {_NEWEST[0]}.{_NEWEST[1]}"
# jupyter_server services/sessions/sessionmanager.py, get_kernel_env: the notebook's path, also in
# JupyterLab.
_NOTEBOOK = "JPY_SESSION_NAME"
_SEE_LS = "`profd ls` lists the processes that you can attach to"
_AS_ROOT = 'run it as root: sudo "$(command -v profd)" attach {pid}'
_OTHER_PYTHON = re.compile(r"(pypy|graalpy)[\d.]*$", re.IGNORECASE)
# py-spy's words if it will never read a process. It says the second in many other cases too: if a
# thread is too deep, or a process has only just begun.
_UNSUPPORTED = re.compile(r"(?i)unsupported version of python:? ?(?P<version>[\d.]*)")
_NOT_FOUND = re.compile(r"(?i)failed to find (python version|a python interpreter)")
NO_FRAMES = "it finds no frame"
"""Replaces py-spy's words if it can read a process and gives none of its stacks."""


class Attachable(msgspec.Struct, frozen=True):
    """A Python process of this user.

    ``uses_torch`` is True if it has loaded PyTorch, and None if that is not known.

    Secrets in ``command`` are masked; it is only the name of the process if the command was not
    read in time. ``notebook`` is the path of the notebook that a kernel runs, or empty if it runs
    none.
    """

    pid: int
    python: str
    uses_torch: bool | None
    age_s: float
    command: tuple[str, ...]
    notebook: str = ""


def find_attachable(among: Iterable[int] | None = None) -> list[Attachable]:
    """Return the outermost processes that are worth attaching to, of all or ``among`` these PIDs.

    Those with PyTorch come first, then the youngest.
    """
    uid = os.geteuid()
    seen = processes.pids() if among is None else among
    owners = {pid: owner for pid in seen if (owner := processes.owner_uid(pid)) is not None}
    count = Counter(owners.values())
    # A user with many processes delays nobody else: those of users with few processes are read
    # first.
    pids = sorted(
        (pid for pid in owners if uid in (0, owners[pid])), key=lambda pid: count[owners[pid]]
    )
    reads, found = BoundedReads(user_s=LOOK_S / 2, all_s=LOOK_S), dict[int, Attachable]()
    for pid in pids:
        if pid != os.getpid() and (one := _look(pid, reads)) is not None:
            found[pid] = one
    worth = [process for process in found.values() if not _is_covered(process, found)]
    return sorted(worth, key=lambda process: (not process.uses_torch, process.age_s))


def _look(pid: int, reads: BoundedReads) -> Attachable | None:
    """Return what is shown of a process; without time left to read it, only what costs nothing.

    Returns None if it is no Python.
    """
    stat = processes.read_stat(pid)
    if stat is None or not stat.is_running:
        return None
    version = "" if "python" in Path(processes.link(pid, "exe")).name else None
    words: tuple[str, ...] = (stat.comm,)
    maps, notebook = "", ""
    with contextlib.suppress(Unread):
        version = reads.read(pid, processes.python_version)
        if version is None:
            return None
        words = reads.read(pid, processes.command_line)
        maps = reads.read(pid, processes.maps)
        notebook = reads.read(pid, _notebook_of)
    if version is None or is_profd(words):
        return None
    uses_torch = TORCH_LIBRARY in maps if maps else None
    return Attachable(pid, version, uses_torch, stat.age_s, mask_command(words), notebook)


def _notebook_of(pid: int) -> str:
    return processes.environment(pid, frozenset({_NOTEBOOK})).get(_NOTEBOOK, "")


def _is_covered(process: Attachable, found: dict[int, Attachable]) -> bool:
    """Return whether the parent of a process is shown in its place.

    Attaching to the parent shows the process as well.
    """
    stat = processes.read_stat(process.pid)
    parent = found.get(stat.ppid) if stat else None
    return (
        parent is not None
        and not process.notebook
        and (parent.uses_torch or not process.uses_torch)
    )


class System(Rights):
    """The running kernel and the installed py-spy."""

    def has_slurm(self) -> bool:
        from shutil import which

        return which("srun") is not None

    def why_unread(self, pid: int) -> Reason | None:
        return why_unread(pid)

    def dump_failure(self, pid: int) -> str:
        try:
            threads = take_dump(pid)
        except DumpFailed as error:
            return str(error)
        return "" if any(thread.frames for thread in threads) else NO_FRAMES


class ThriftySystem(System):
    """A system whose checks are paid by a run: it skips costly ones.

    The first recording tells as much.
    """

    def dump_failure(self, pid: int) -> str:
        stat = processes.read_stat(pid)
        is_dear = stat is not None and read_cost_s(stat.threads) > _MOST_CPU_S
        return "" if is_dear else super().dump_failure(pid)


def check_attachable(pid: int, system: System | None = None) -> str:
    """Check that profd can read the Python stacks of a process or of its descendants.

    Returns why nothing can be read at the moment, if that may pass; empty if all can be read.

    Raises, in this order: NoSuchProcess, ZombieProcess, OtherUsersProcess, NotPython,
    PtraceScopeForbids or MissingCapability, UnsupportedPython (last, as only py-spy can tell); and
    MissingTool if py-spy is missing.
    """
    system = system or System()
    found = _find_living(pid, system)
    _check_owner(pid, found, system)
    executable = system.executable(pid)
    # If the executable is not known, the process may hide what it runs.
    may_be_python = executable is None or _OTHER_PYTHON.fullmatch(Path(executable).name) is not None
    if not found.is_kernel_thread and (may_be_python or system.python_version(pid) is not None):
        pythons = [pid]
    else:  # a launcher: check the Pythons below it
        pythons = [
            child for child in system.descendants(pid) if system.python_version(child) is not None
        ]
    problems = []
    for python in pythons:
        problem = _problem(python, system)
        if not isinstance(problem, ProfdError):
            return problem
        problems.append(problem)
    if problems:
        raise problems[0]
    if found.is_kernel_thread:
        raise errors.NotPython(f"pid {pid} is {found.name}, a thread of the kernel", _SEE_LS)
    below = ", and nothing below it is Python" if any(system.descendants(pid)) else ", not Python"
    raise errors.NotPython(f"pid {pid} is {found.name}{below}", _SEE_LS)


def _find_living(pid: int, system: System) -> Credentials:
    """Return the credentials of a process that is there and has not ended.

    Raises NoSuchProcess or ZombieProcess, and OtherUsersProcess if /proc hides it.
    """
    found = system.credentials(pid)
    if found is None:
        if system.is_hidden(pid):
            what = f"pid {pid} belongs to another user, and /proc hides it from you"
            raise errors.OtherUsersProcess(what, _as_root(pid, system))
        remedy = _SEE_LS
        if system.has_slurm():
            remedy += f"; in a job of Slurm: srun --jobid=JOB --overlap --pty profd attach {pid}"
        raise errors.NoSuchProcess(f"there is no process {pid}", remedy)
    if found.tgid != pid:
        what = f"{pid} is no process but a thread of pid {found.tgid}"
        raise errors.NoSuchProcess(what, f"attach to its process: profd attach {found.tgid}")
    if found.state in "ZX":
        what = f"pid {pid} ({found.name}) has ended and waits to be reaped by its parent"
        raise errors.ZombieProcess(what, f"there is nothing left to profile; {_SEE_LS}")
    return found


def _check_owner(pid: int, found: Credentials, system: System) -> None:
    """Raise OtherUsersProcess if user ids alone forbid reading.

    Root passes: if it lacks a right, that is no matter of users.
    """
    others = [uid for uid in found.uids if uid != system.uid]
    if not others or system.uid == 0 or system.may_read_all():
        return
    if found.uids[0] == system.uid:
        what = (
            f"pid {pid} ({found.name}) is yours, but runs with the rights of user {others[0]} "
            "(setuid)"
        )
    else:
        what = (
            f"pid {pid} ({found.name}) belongs to user {found.uids[0]}, and you are user "
            f"{system.uid}"
        )
    raise errors.OtherUsersProcess(what, _as_root(pid, system))


def _as_root(pid: int, system: System) -> str:
    """Return the command that attaches as root.

    Few containers have sudo, and their host can give the right.
    """
    command = system.place().command(pid)
    return f"run it as root, on the host: {command}" if command else _AS_ROOT.format(pid=pid)


def _problem(pid: int, system: System) -> ProfdError | str:
    """Return why the stacks of a Python process cannot be read; a text if that may pass.

    The text is empty if they can be read.
    """
    other = _OTHER_PYTHON.fullmatch(Path(system.executable(pid) or "").name)
    if other:
        what = f"pid {pid} runs {other[0]}, and only CPython can be read"
        return errors.UnsupportedPython(what, "run the script with CPython")
    denied = system.read_memory(pid)
    if denied:
        return _refusal(pid, denied, system)
    said = system.dump_failure(pid)
    reason = system.why_unread(pid) if said else None
    if reason is not None:
        what = f"pid {pid} cannot be read: {reason.what} (py-spy: {said})"
        passes = said == NO_FRAMES or not reason.lasting
        return (
            f"{what}; {reason.remedy}" if passes else errors.UnsupportedPython(what, reason.remedy)
        )
    if re.search("permission denied|operation not permitted", said, re.IGNORECASE):
        is_refused = system.ptrace_scope() >= 1 and not system.may_read_all()
        return _refusal(pid, errno.EACCES, system) if is_refused else ""
    return _unsupported(pid, said, system) or ""


def _unsupported(pid: int, said: str, system: System) -> ProfdError | None:
    """Return the error that py-spy does not know this Python, if its words say so.

    Otherwise it was an unlucky moment.
    """
    named, version = _UNSUPPORTED.search(said), system.python_version(pid)
    if not named and not (_NOT_FOUND.search(said) and _is_unknown_to_py_spy(version)):
        return None
    version = (named["version"] if named else "") or version
    runs = f"Python {version}" if version else "a Python of unknown version"
    what = f"pid {pid} runs {runs}, which the installed py-spy cannot read ({said})"
    newer = install_command("-U", "py-spy")
    remedy = f"profd reads {PYTHON_VERSIONS}; a newer py-spy may read more: {newer}"
    return errors.UnsupportedPython(what, remedy)


def _is_unknown_to_py_spy(version: str | None) -> bool:
    major, _, minor = (version or "").partition(".")
    return not minor.isdecimal() or not _OLDEST <= (int(major), int(minor)) <= _NEWEST


def _refusal(pid: int, number: int, system: System) -> ProfdError:
    """Return the error that explains why profd may not read the memory of a process.

    The process belongs to profd's user, or profd runs as root.
    """
    if number == errno.ESRCH:
        return errors.NoSuchProcess(f"pid {pid} ended while it was looked at", _SEE_LS)
    scope, place = system.ptrace_scope(), system.place()
    command = place.command(pid)
    if scope >= 3 or (scope >= 1 and not system.may_read_all()):
        where = " on the host" if place.runtime else ""
        launch = ", or launch the script with `profd run`" if scope == 1 else ""
        first = _on_host(command)
        remedy = f"{first}sudo sysctl kernel.yama.ptrace_scope=0{where}{launch}"
        if not command:
            remedy += f", or {_AS_ROOT.format(pid=pid)}"
        if scope >= 3:
            remedy = (
                f"at 3 it stays until a reboot{where}: set it to 0 in /etc/sysctl.d, and reboot"
            )
        what = (
            f"pid {pid} cannot be read, because kernel.yama.ptrace_scope is {scope} on this machine"
        )
        return errors.PtraceScopeForbids(what, remedy)
    return errors.MissingCapability(*_withheld(pid, system, place))


def _on_host(command: str) -> str:
    """Return the remedy that a command on the host is, before another one; empty if none is."""
    return (
        f"on the host: {command} (it gives the right to this command alone), or " if command else ""
    )


def _withheld(pid: int, system: System, place: ProcessPlace) -> tuple[str, str]:
    """Return what withholds the right to read a process, and the remedy.

    The process does not belong to another user.
    """
    run = f"{place.runtime if place.runtime in ('docker', 'podman') else 'docker'} run"
    on_host = f"start the container with `{run} %s`, or run profd on the host"
    if system.is_filtered(pid):
        what = (
            f"a seccomp filter forbids profd the calls that read pid {pid} (process_vm_readv, "
            "ptrace)"
        )
        remedy = (
            "run profd outside of what set the filter; a unit of systemd allows them by "
            "SystemCallFilter=@debug"
        )
        return what, on_host % "--security-opt seccomp=unconfined" if place.runtime else remedy
    module = system.security_module()
    if system.may_read_all() and not module:
        what = (
            f"the kernel keeps profd from reading pid {pid}, and it is unknown why: profd has "
            "the right to read all processes (CAP_SYS_PTRACE), and no filter or security module "
            "confines it"
        )
        return what, "run profd on the host" if place.runtime else ""
    if system.may_read_all():
        what = f"{module} keeps profd from reading pid {pid}"
        if place.runtime:
            option = "label=disable" if module == "SELinux" else "apparmor=unconfined"
            return what, on_host % f"--security-opt {option}"
        remedies = {
            "SELinux": "sudo setsebool deny_ptrace off",
            "AppArmor": "sudo aa-complain PROFILE, that of profd",
        }
        return what, remedies[module]
    if place.runtime:
        what = f"this container may not read pid {pid}: it lacks the capability SYS_PTRACE"
        command = place.command(pid)
        first = _on_host(command)
        return what, first + on_host % "--cap-add=SYS_PTRACE"
    what = (
        f"the kernel closes pid {pid} even to its own user (it has more rights than you, or is "
        "marked undumpable)"
    )
    step = system.place(pid).step_command(pid)
    return what, (f"{step}, or " if step else "") + _AS_ROOT.format(pid=pid)
