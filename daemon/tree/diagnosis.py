"""The ladder of diagnoses: whether a process can be attached to, and if not, which of many reasons it is.

Asks cheap and certain questions first, and lets py-spy itself have the last word. Knows nothing of sessions; what it
asks the system stands in ``System``, so that every rung can be tried without such a system at hand.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from profd.daemon.errors import (
    MissingCapability,
    NoSuchProcess,
    NotPython,
    OtherUsersProcess,
    ProfdError,
    PtraceScopeForbids,
    UnsupportedPython,
    ZombieProcess,
)
from profd.daemon.rights import Credentials, Rights
from profd.daemon.stacks.dump import DumpFailed, take_dump

PYTHON_VERSIONS = "CPython 3.8 to 3.15"
_SEE_LS = "`profd ls` lists the processes that you can attach to"
_AS_ROOT = 'run it as root: sudo "$(command -v profd)" attach {pid}'
_OTHER_PYTHON = re.compile(r"(pypy|graalpy)[\d.]*$", re.IGNORECASE)
# What py-spy says when it never will read a process. Other failures pass: it was asked at an unlucky moment.
_UNSUPPORTED = re.compile(r"unsupported version of python:? ?(?P<version>[\d.]*)", re.IGNORECASE)
_NO_INTERPRETER = re.compile(r"failed to find (?:python version|a python interpreter)", re.IGNORECASE)
_DENIED = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)


class System(Protocol):
    """What the ladder asks of the system; ``Rights`` answers for the real one."""

    @property
    def uid(self) -> int:
        """The effective user id of this process."""
        ...

    def credentials(self, pid: int) -> Credentials | None:
        """Return who a process is; None where there is none, or it is hidden from us."""
        ...

    def is_hidden(self, pid: int) -> bool:
        """Say whether a process exists that /proc does not show us."""
        ...

    def may_read_all(self) -> bool:
        """Say whether this process has CAP_SYS_PTRACE."""
        ...

    def ptrace_scope(self) -> int:
        """Return Yama's ptrace_scope, 0 to 3."""
        ...

    def in_container(self) -> bool:
        """Say whether this process runs in a container."""
        ...

    def descendants(self, pid: int) -> Iterator[int]:
        """Yield the PIDs of the living descendants of a process, this one and its own left out."""
        ...

    def executable(self, pid: int) -> str | None:
        """Return the path of the program that a process runs; None where it may not be looked at."""
        ...

    def python_version(self, pid: int) -> str | None:
        """Return ``major.minor`` of a process's CPython, ``""`` where unknown, None where it is no Python."""
        ...

    def read_memory(self, pid: int) -> int:
        """Try to read some bytes of a process's memory; return 0, or the error's number."""
        ...

    def dump_failure(self, pid: int) -> str:
        """Return why py-spy cannot read a process, on one line; empty where it can."""
        ...


class RealSystem(Rights):
    """The running kernel and the installed py-spy."""

    def dump_failure(self, pid: int) -> str:
        """Return why py-spy cannot read a process, on one line; empty where it can."""
        try:
            take_dump(pid)
        except DumpFailed as error:
            return str(error)
        return ""


def check_attachable(pid: int, system: System | None = None) -> None:
    """Return where profd can read the Python stacks of a process or of its descendants, else say why it cannot.

    Raises, in this order: NoSuchProcess, ZombieProcess, OtherUsersProcess, NotPython, PtraceScopeForbids or
    MissingCapability, UnsupportedPython (last, as only py-spy can tell); and MissingTool where py-spy is missing.
    """
    system = system or RealSystem()
    found = _living(pid, system)
    _check_owner(pid, found, system)
    first: ProfdError | None = None
    for python in _pythons(pid, found, system):
        problem = _problem(python, system)
        if problem is None:
            return
        first = first or problem
    raise first or _not_python(pid, found, system)


def _living(pid: int, system: System) -> Credentials:
    """Return who a process is, where it is one and alive."""
    found = system.credentials(pid)
    if found is None:
        if system.is_hidden(pid):
            raise OtherUsersProcess(
                f"pid {pid} belongs to another user, and /proc hides it from you", _AS_ROOT.format(pid=pid)
            )
        raise NoSuchProcess(f"there is no process {pid}", _SEE_LS)
    if found.tgid != pid:
        raise NoSuchProcess(
            f"{pid} is no process but a thread of pid {found.tgid}", f"attach to its process: profd attach {found.tgid}"
        )
    if found.state in "ZX":
        raise ZombieProcess(
            f"pid {pid} ({found.name}) has ended and waits to be reaped by its parent",
            f"there is nothing left to profile; {_SEE_LS}",
        )
    return found


def _check_owner(pid: int, found: Credentials, system: System) -> None:
    """Raise OtherUsersProcess where user ids alone already forbid the reading.

    Root without CAP_SYS_PTRACE, as in a container, passes: what it lacks is no user.
    """
    others = [uid for uid in found.uids if uid != system.uid]
    if not others or system.uid == 0 or system.may_read_all():
        return
    if found.uids[0] == system.uid:
        what = f"pid {pid} ({found.name}) is yours, but runs with the rights of user {others[0]} (setuid)"
    else:
        what = f"pid {pid} ({found.name}) belongs to user {found.uids[0]}, and you are user {system.uid}"
    raise OtherUsersProcess(what, _AS_ROOT.format(pid=pid))


def _pythons(pid: int, found: Credentials, system: System) -> Iterator[int]:
    """Yield the processes whose stacks are wanted: the process itself, or for a launcher the Pythons below it."""
    if _may_be_python(pid, system) and not found.is_kernel_thread:
        yield pid
        return
    for child in system.descendants(pid):
        if system.python_version(child) is not None:
            yield child


def _may_be_python(pid: int, system: System) -> bool:
    """Say whether a process runs Python, or does not let us see what it runs."""
    executable = system.executable(pid)
    if executable is None or _OTHER_PYTHON.fullmatch(Path(executable).name):
        return True
    return system.python_version(pid) is not None


def _not_python(pid: int, found: Credentials, system: System) -> NotPython:
    """Return the error that names what a process is, if not Python."""
    if found.is_kernel_thread:
        return NotPython(f"pid {pid} is {found.name}, a thread of the kernel", _SEE_LS)
    below = ", and nothing below it is Python" if any(system.descendants(pid)) else ", not Python"
    return NotPython(f"pid {pid} is {found.name}{below}", _SEE_LS)


def _problem(pid: int, system: System) -> ProfdError | None:
    """Return why the stacks of a Python process cannot be read, None where they can."""
    executable = system.executable(pid)
    other = executable and _OTHER_PYTHON.fullmatch(Path(executable).name)
    if other:
        return UnsupportedPython(
            f"pid {pid} runs {other[0]}, and only CPython can be read", "run the script with CPython"
        )
    denied = system.read_memory(pid)
    if denied:
        return _refusal(pid, denied, system)
    said = system.dump_failure(pid)
    if _DENIED.search(said):
        return _refusal(pid, errno.EACCES, system)
    if _UNSUPPORTED.search(said) or _NO_INTERPRETER.search(said):
        return _unsupported(pid, said, system)
    return None


def _unsupported(pid: int, said: str, system: System) -> UnsupportedPython:
    """Return the error for a Python that py-spy cannot make out."""
    named = _UNSUPPORTED.search(said)
    version = (named and named["version"]) or system.python_version(pid)
    runs = f"Python {version}" if version else "a Python of unknown version"
    return UnsupportedPython(
        f"pid {pid} runs {runs}, which the installed py-spy cannot read ({said})",
        f"profd reads {PYTHON_VERSIONS}; a newer py-spy may read more: pip install -U py-spy",
    )


def _refusal(pid: int, number: int, system: System) -> ProfdError:
    """Return the error that explains why the memory of our own process, or of any to root, is closed to us."""
    if number == errno.ESRCH:
        return NoSuchProcess(f"pid {pid} ended while it was looked at", _SEE_LS)
    scope = system.ptrace_scope()
    if scope >= 3 or (scope >= 1 and not system.may_read_all()):
        return PtraceScopeForbids(
            f"pid {pid} cannot be read, because kernel.yama.ptrace_scope is {scope} on this machine",
            _scope_remedy(pid, scope, system),
        )
    if system.may_read_all():
        return MissingCapability(
            f"a security module (SELinux, AppArmor, seccomp) keeps pid {pid} from being read",
            "allow ptrace for profd in its policy, or run profd where the process runs",
        )
    if system.in_container():
        return MissingCapability(
            f"this container may not read pid {pid}: it lacks the capability SYS_PTRACE",
            "start it with `docker run --cap-add SYS_PTRACE`, or run profd on the host",
        )
    return MissingCapability(
        f"the kernel closes pid {pid} even to its own user (it has more rights than you, or is marked undumpable)",
        _AS_ROOT.format(pid=pid),
    )


def _scope_remedy(pid: int, scope: int, system: System) -> str:
    """Return how to get past Yama, which differs with its level."""
    where = " on the host" if system.in_container() else ""
    if scope >= 3:
        return f"at 3 it stays until a reboot{where}: set it to 0 in /etc/sysctl.d, and reboot"
    launch = ", or launch the script with `profd run`" if scope == 1 else ""
    return f"sudo sysctl kernel.yama.ptrace_scope=0{where}{launch}, or {_AS_ROOT.format(pid=pid)}"
