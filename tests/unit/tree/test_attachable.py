"""Which running processes are offered: seen with real ones."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fakesystem import ADA, BOB, ROOT, FakeProcess, FakeSystem
from support.interpreters import Standing, standing

from profd.daemon import processes
from profd.daemon.containers import Place
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
from profd.daemon.secrets import CUT, WORD_CHARACTERS
from profd.daemon.tree.attachable import check_attachable, find_attachable

PARENT = """
import subprocess, sys
subprocess.call([sys.executable, "-c", "print('ready', flush=True); input()"])
"""


@pytest.fixture
def family() -> Iterator[Standing]:
    """Run a Python process with a Python child; the child says when both run."""
    with standing(PARENT, sys.executable, "--token", "hunter2") as process:
        yield process


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def test_process_is_found_with_its_secrets_masked_and_covers_its_child(family: Standing) -> None:
    (found,) = [process for process in find_attachable() if process.pid == family.pid]
    assert found.command[-2:] == ("--token", "***")
    assert found.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert 0 <= found.age_s < 60
    assert child_of(family.pid) not in [process.pid for process in find_attachable()]


def test_a_kernel_is_offered_by_its_notebook_and_the_longest_command_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/tune.ipynb")
    longest = "x" * ((128 << 10) - 1)
    with standing("\nready()", sys.executable, longest) as kernel:
        (found,) = [process for process in find_attachable() if process.pid == kernel.pid]
    assert (found.notebook, found.command[-1]) == ("/home/me/tune.ipynb", f"{longest[:WORD_CHARACTERS]}{CUT}")


def test_training_child_of_a_launcher_is_offered_first(family: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    child = child_of(family.pid)
    monkeypatch.setattr(processes, "maps", lambda pid: "/libtorch.so" if pid == child else "")
    pids = [process.pid for process in find_attachable()]
    assert pids[0] == child
    assert family.pid in pids[1:]


def test_profd_itself_is_not_offered() -> None:
    words = [sys.executable, "-m", "profd.daemon.session"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as own:
        assert own.pid not in [process.pid for process in find_attachable()]
        own.kill()


PID = 4242


def failure(system: FakeSystem) -> ProfdError:
    """Return the error that the ladder raises for PID."""
    with pytest.raises(ProfdError) as raised:
        check_attachable(PID, system)
    return raised.value


def of_one(process: FakeProcess, **facts: object) -> FakeSystem:
    return FakeSystem({PID: process}, **facts)  # type: ignore[arg-type]


def bash(**facts: object) -> FakeProcess:
    return FakeProcess(**{"name": "bash", "executable": "/bin/bash", "python": None, **facts})  # type: ignore[arg-type]


def python(**facts: object) -> FakeProcess:
    return FakeProcess(**facts)  # type: ignore[arg-type]


NEWER = "Unsupported version of Python: 3.16.0"
ATTACHABLE = {
    "own Python": of_one(python()),
    "another user's, with the capability": of_one(python(uids=(BOB, BOB, BOB)), capable=True),
    "a launcher of Python": FakeSystem({PID: bash(children=[2]), 2: bash(children=[3]), 3: python()}),
    "a launcher of one readable Python": FakeSystem(
        {PID: bash(children=[2, 3]), 2: python(py_spy_says=NEWER), 3: python()}
    ),
    "an unlucky moment": of_one(python(py_spy_says="Failed to copy PyCodeObject (Bad address)")),
    "a ptrace_scope that lets us read": of_one(python(), scope=1),
}


@pytest.mark.parametrize("system", ATTACHABLE.values(), ids=ATTACHABLE)
def test_what_py_spy_can_read_is_attachable(system: FakeSystem) -> None:
    check_attachable(PID, system)


PODMAN, POD = Place("podman", "946995504dac"), Place("containerd", "", "trainer-0", "ml", "main")


def closed(**facts: object) -> FakeSystem:
    """Return a system in which root may not read a process of root's."""
    return of_one(python(uids=(ROOT, ROOT, ROOT), denied=errno.EPERM), uid=ROOT, **facts)


FORBIDDEN: dict[str, tuple[FakeSystem, type[ProfdError], str]] = {
    "no process": (FakeSystem({}), NoSuchProcess, str(PID)),
    "a thread": (of_one(python(tgid=4000)), NoSuchProcess, "profd attach 4000"),
    "one that ends while it is looked at": (of_one(python(denied=errno.ESRCH)), NoSuchProcess, ""),
    "a zombie": (of_one(python(state="Z", executable=None, python=None)), ZombieProcess, ""),
    "one hidden from us": (FakeSystem({}, hidden=True), OtherUsersProcess, ""),
    "a shell of another user": (of_one(bash(uids=(BOB, BOB, BOB))), OtherUsersProcess, "sudo"),
    "a setuid process of our own": (of_one(python(uids=(ADA, ROOT, ROOT))), OtherUsersProcess, "setuid"),
    "a shell": (of_one(bash()), NotPython, "bash"),
    "a thread of the kernel": (
        of_one(bash(name="kworker/0:1", executable=None, is_kernel_thread=True), uid=ROOT, capable=True),
        NotPython,
        "kernel",
    ),
    "PyPy": (of_one(FakeProcess("pypy3", executable="/opt/pypy3.10", python=None)), UnsupportedPython, "CPython"),
    "a version that py-spy does not read": (of_one(python(py_spy_says=NEWER)), UnsupportedPython, "3.16.0"),
    "a Python that py-spy cannot find": (
        of_one(python(python="", py_spy_says="Failed to find python version from target process")),
        UnsupportedPython,
        "",
    ),
    "a free-threaded Python": (
        of_one(python(python="3.13", py_spy_says="Failed to find a python interpreter", free_threaded=True)),
        UnsupportedPython,
        "the build that has the GIL",
    ),
    "a launcher of a Python that ptrace_scope forbids": (
        FakeSystem({PID: bash(children=[2]), 2: python(denied=errno.EPERM)}, scope=1),
        PtraceScopeForbids,
        "",
    ),
    "ptrace_scope 3, with the capability": (closed(scope=3, capable=True), PtraceScopeForbids, ""),
    "ptrace_scope, for py-spy alone": (
        of_one(python(py_spy_says="Permission Denied: Try running again with elevated permissions"), scope=1),
        PtraceScopeForbids,
        "",
    ),
    "a container without the capability": (closed(here=Place("lxc")), MissingCapability, "--cap-add=SYS_PTRACE"),
    "a container of podman": (
        closed(here=PODMAN),
        MissingCapability,
        f"on the host: podman exec --privileged --user 0 -it 946995504dac profd attach {PID}",
    ),
    "a pod": (closed(here=POD), MissingCapability, "kubectl debug -it -n ml pod/trainer-0"),
    "another user of a container": (of_one(python(), uid=BOB, here=PODMAN), OtherUsersProcess, "podman exec --priv"),
    "ptrace_scope in a container": (closed(scope=1, here=PODMAN), PtraceScopeForbids, "podman"),
    "a filter of seccomp": (closed(filtered=True), MissingCapability, "SystemCallFilter=@debug"),
    "a filter of seccomp in a container": (
        closed(filtered=True, here=PODMAN),
        MissingCapability,
        "podman run --security-opt seccomp=unconfined",
    ),
    "SELinux": (closed(capable=True, module="SELinux"), MissingCapability, "setsebool deny_ptrace off"),
    "AppArmor in a container": (
        closed(capable=True, module="AppArmor", here=PODMAN),
        MissingCapability,
        "--security-opt apparmor=unconfined",
    ),
    "one closed to its own user in a job": (
        of_one(python(denied=errno.EACCES, place=Place(job="42"))),
        MissingCapability,
        "srun --jobid=42 --overlap --pty",
    ),
    "no process, in Slurm": (FakeSystem({}, slurm=True), NoSuchProcess, f"--overlap --pty profd attach {PID}"),
    "another user in a container": (
        of_one(python(uids=(BOB, BOB, BOB), denied=errno.EPERM), uid=ROOT, here=Place("lxc")),
        MissingCapability,
        "",
    ),
    "one closed to its own user": (
        of_one(python(executable=None, python=None, denied=errno.EACCES)),
        MissingCapability,
        "undumpable",
    ),
    "a security module, with the capability": (closed(capable=True), MissingCapability, "security module"),
}


@pytest.mark.parametrize(("system", "kind", "words"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_cannot_be_attached_to_says_why(system: FakeSystem, kind: type[ProfdError], words: str) -> None:
    error = failure(system)
    assert isinstance(error, kind)
    assert words in error.what + error.remedy


@pytest.mark.parametrize(
    ("scope", "remedies"),
    [
        (1, ["sysctl kernel.yama.ptrace_scope=0", "profd run", "sudo"]),
        (2, ["sysctl kernel.yama.ptrace_scope=0", "sudo"]),
        (3, ["/etc/sysctl.d", "reboot"]),
    ],
)
def test_ptrace_scope_has_the_remedies_of_its_level(scope: int, remedies: list[str]) -> None:
    error = failure(of_one(FakeProcess(denied=errno.EPERM), scope=scope))
    assert isinstance(error, PtraceScopeForbids)
    assert [remedy for remedy in remedies if remedy not in error.remedy] == []
    assert ("profd run" in error.remedy) == (scope == 1)
