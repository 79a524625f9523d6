"""Which running processes are offered: seen with real ones."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.fakesystem import ADA, BOB, ROOT, FakeProcess, FakeSystem
from support.interpreters import Standing, standing
from support.present import there

from profd.daemon import processes
from profd.daemon.boundedreads import Unread
from profd.daemon.containers import ProcessPlace
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
from profd.daemon.naming import is_profd
from profd.daemon.secrets import CUT, WORD_CHARACTERS
from profd.daemon.tree.attachable import (
    NO_FRAMES,
    System,
    ThriftySystem,
    check_attachable,
    find_attachable,
)
from profd.daemon.tree.unread import Reason

PARENT = """
import subprocess, sys
subprocess.call([sys.executable, "-c", "print('ready', flush=True); input()"])
"""


@pytest.fixture
def family() -> Iterator[Standing]:
    """Run a Python process with a Python child; the child says when both run."""
    with standing(PARENT, sys.executable, "--token", "hunter2") as process:
        yield process


@pytest.mark.parametrize(("threads", "looks"), [(40, 1), (2_000, 0)])
def test_a_run_pays_for_no_look_at_thousands_of_threads_before_its_first_recording(
    monkeypatch: pytest.MonkeyPatch, threads: int, looks: int
) -> None:
    stat, asked = there(processes.read_stat(os.getpid())), list[int]()
    of_many = msgspec.structs.replace(stat, threads=threads)
    monkeypatch.setattr(processes, "read_stat", lambda pid: of_many)

    def dump_failure(self: System, pid: int) -> str:
        asked.append(pid)
        return ""

    monkeypatch.setattr(System, "dump_failure", dump_failure)
    assert ThriftySystem().dump_failure(os.getpid()) == ""
    assert len(asked) == looks


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def test_process_is_found_with_its_secrets_masked_and_covers_its_child(family: Standing) -> None:
    (found,) = [process for process in find_attachable() if process.pid == family.pid]
    assert found.command[-2:] == ("--token", "***")
    assert found.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert 0 <= found.age_s < 60
    assert child_of(family.pid) not in [process.pid for process in find_attachable()]


def test_a_kernel_is_offered_by_its_notebook_and_the_longest_command_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/tune.ipynb")
    longest = "x" * ((128 << 10) - 1)
    with standing("\nready()", sys.executable, longest) as kernel:
        (found,) = [process for process in find_attachable() if process.pid == kernel.pid]
    assert (found.notebook, found.command[-1]) == (
        "/home/me/tune.ipynb",
        f"{longest[:WORD_CHARACTERS]}{CUT}",
    )


def test_a_process_that_cannot_be_read_in_time_is_offered_with_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another user chooses how long it takes to read a process; the list does not wait for it."""

    def give_up(pid: int) -> str:
        raise Unread

    with standing("\nready()") as process:
        monkeypatch.setattr(processes, "python_version", lambda pid: "3.11")
        monkeypatch.setattr(processes, "maps", give_up)
        (found,) = [one for one in find_attachable() if one.pid == process.pid]
        assert (found.uses_torch, found.command[0]) == (None, sys.executable)
        monkeypatch.setattr(processes, "python_version", give_up)
        (found,) = [one for one in find_attachable() if one.pid == process.pid]
        assert found.command == (there(processes.read_stat(process.pid)).comm,)


def test_training_child_of_a_launcher_is_offered_first(
    family: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_of(family.pid)
    monkeypatch.setattr(processes, "maps", lambda pid: "/libtorch.so" if pid == child else "")
    pids = [process.pid for process in find_attachable()]
    assert pids[0] == child
    assert family.pid in pids[1:]


def test_profd_itself_is_not_offered() -> None:
    words = [sys.executable, "-m", "profd.daemon.session"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as own:
        assert own.pid not in [process.pid for process in find_attachable()]
        own.kill()


@pytest.mark.parametrize(
    "words",
    [
        *(
            "profd ls",
            "python3 /bin/profd run",
            "/venv/bin/python -E /bin/profd attach 7",
            "python -m profd.tui",
        ),
        *(
            "python -I -S /venv/lib/profd/daemon/asuser.py 3 0 0",
            "python -c from\N{NO-BREAK SPACE}profd.cli.main",
        ),
    ],
)
def test_a_command_is_profd_however_it_was_installed(words: str) -> None:
    assert is_profd(tuple(one.replace("\N{NO-BREAK SPACE}", " ") for one in words.split(" ")))


@pytest.mark.parametrize(
    "words", ["python train.py profd", "python -m profdata", "python -E train.py /bin/profd", ""]
)
def test_a_command_that_only_names_profd_is_another_one(words: str) -> None:
    assert not is_profd(tuple(words.split()))


PID = 4242


def failure(system: FakeSystem) -> ProfdError:
    """Return the error that the ladder raises for PID."""
    with pytest.raises(ProfdError) as raised:
        check_attachable(PID, system)
    return raised.value


def of_one(process: FakeProcess, **facts: object) -> FakeSystem:
    return FakeSystem({PID: process}, **facts)  # type: ignore[arg-type]


python = FakeProcess


def bash(**facts: object) -> FakeProcess:
    return FakeProcess(**{"name": "bash", "executable": "/bin/bash", "python": None, **facts})  # type: ignore[arg-type]


NEWER = "Unsupported version of Python: 3.16.0"
NO_VERSION, NO_PYTHON = (
    "Failed to find python version from target process",
    "Failed to find a python interpreter",
)
NO_RIGHTS = "Permission Denied: Try running again with elevated permissions"
ATTACHABLE = {
    "own Python": of_one(python()),
    "another user's, with the capability": of_one(python(uids=(BOB, BOB, BOB)), capable=True),
    "a launcher of Python": FakeSystem(
        {PID: bash(children=[2]), 2: bash(children=[3]), 3: python()}
    ),
    "a launcher of one readable Python": FakeSystem(
        {PID: bash(children=[2, 3]), 2: python(py_spy_says=NEWER), 3: python()}
    ),
    "an unlucky moment": of_one(python(py_spy_says="Failed to copy PyCodeObject (Bad address)")),
    "a ptrace_scope that lets us read": of_one(python(), scope=1),
    "a thread that is too deep now": of_one(
        python(py_spy_says=NO_PYTHON, unread=Reason("deep", "wait", lasting=False))
    ),
    "one of a known version that has only begun": of_one(python(py_spy_says=NO_VERSION)),
    "no right where the memory is open": of_one(
        python(py_spy_says=NO_RIGHTS), uid=ROOT, capable=True
    ),
}


@pytest.mark.parametrize("system", ATTACHABLE.values(), ids=ATTACHABLE)
def test_what_py_spy_can_read_is_attachable(system: FakeSystem) -> None:
    deep = "a thread that is too deep now"
    said = (
        f"pid {PID} cannot be read: deep (py-spy: {NO_PYTHON}); wait"
        if system is ATTACHABLE[deep]
        else ""
    )
    assert check_attachable(PID, system) == said


def test_what_gives_no_frame_at_the_moment_is_attachable_and_says_why() -> None:
    reason = Reason("it has two interpreters", "have one")
    said = check_attachable(PID, of_one(python(py_spy_says=NO_FRAMES, unread=reason)))
    assert (
        said == f"pid {PID} cannot be read: it has two interpreters (py-spy: {NO_FRAMES}); have one"
    )
    assert check_attachable(PID, of_one(python(py_spy_says=NO_FRAMES))) == ""


PODMAN, POD = (
    ProcessPlace("podman", "946995504dac"),
    ProcessPlace("containerd", "", "trainer-0", "ml", "main"),
)


def closed(uids: tuple[int, int, int] = (ROOT, ROOT, ROOT), **facts: object) -> FakeSystem:
    """Return a system in which root may not read a process of root's."""
    return of_one(python(uids=uids, denied=errno.EPERM), uid=ROOT, **facts)


OF_PODMAN = f"on the host: podman exec --privileged --user 0 -it 946995504dac profd attach {PID}"
FORBIDDEN: dict[type[ProfdError], dict[str, tuple[FakeSystem, str]]] = {
    NoSuchProcess: {
        "no process": (FakeSystem({}), str(PID)),
        "no process, in Slurm": (FakeSystem({}, slurm=True), f"--overlap --pty profd attach {PID}"),
        "a thread": (of_one(python(tgid=4000)), "profd attach 4000"),
        "one that ends while it is looked at": (of_one(python(denied=errno.ESRCH)), ""),
    },
    ZombieProcess: {"a zombie": (of_one(python(state="Z", executable=None, python=None)), "")},
    OtherUsersProcess: {
        "one hidden from us": (FakeSystem({}, hidden=True), ""),
        "a shell of another user": (of_one(bash(uids=(BOB, BOB, BOB))), "sudo"),
        "a setuid process of our own": (of_one(python(uids=(ADA, ROOT, ROOT))), "setuid"),
        "another user of a container": (
            of_one(python(), uid=BOB, here=PODMAN),
            "podman exec --priv",
        ),
    },
    NotPython: {
        "a shell": (of_one(bash()), "bash"),
        "a thread of the kernel": (
            of_one(bash(executable=None, is_kernel_thread=True), uid=ROOT),
            "kernel",
        ),
    },
    UnsupportedPython: {
        "PyPy": (of_one(FakeProcess("pypy3", executable="/opt/pypy3.10", python=None)), "CPython"),
        "a version that py-spy does not read": (of_one(python(py_spy_says=NEWER)), "3.16.0"),
        "a Python that py-spy cannot find": (of_one(python(python="", py_spy_says=NO_VERSION)), ""),
        "what was seen in it": (
            of_one(
                python(py_spy_says=NO_PYTHON, unread=Reason("it has two interpreters", "have one"))
            ),
            f"it has two interpreters (py-spy: {NO_PYTHON})",
        ),
    },
    PtraceScopeForbids: {
        "a launcher of a Python": (
            FakeSystem({PID: bash(children=[2]), 2: python(denied=errno.EPERM)}, scope=1),
            "",
        ),
        "level 3, with the capability": (closed(scope=3, capable=True), ""),
        "for py-spy alone": (of_one(python(py_spy_says=NO_RIGHTS), scope=1), ""),
        "in a container": (closed(scope=1, here=PODMAN), "podman"),
    },
    MissingCapability: {
        "a container without the capability": (
            closed(here=ProcessPlace("lxc")),
            "--cap-add=SYS_PTRACE",
        ),
        "a container of podman": (closed(here=PODMAN), OF_PODMAN),
        "a pod": (closed(here=POD), "kubectl debug -it -n ml pod/trainer-0"),
        "seccomp": (closed(filtered=True), "SystemCallFilter=@debug"),
        "seccomp in a container": (
            closed(filtered=True, here=PODMAN),
            "podman run --security-opt seccomp=unconfined",
        ),
        "SELinux": (closed(capable=True, module="SELinux"), "setsebool deny_ptrace off"),
        "AppArmor": (
            closed(capable=True, module="AppArmor", here=PODMAN),
            "--security-opt apparmor=unconfined",
        ),
        "another user in a container": (closed(uids=(BOB, BOB, BOB), here=ProcessPlace("lxc")), ""),
        "one closed to its own user": (
            of_one(python(executable=None, python=None, denied=errno.EACCES)),
            "undumpable",
        ),
        "and in a job": (
            of_one(python(denied=errno.EACCES, place=ProcessPlace(job="42"))),
            "srun --jobid=42 --overlap --pty",
        ),
        "an unknown reason, with the capability": (closed(capable=True), "it is unknown why"),
        "an unknown reason, in a container": (
            closed(capable=True, here=PODMAN),
            "run profd on the host",
        ),
    },
}


@pytest.mark.parametrize(
    ("kind", "case"),
    [(kind, case) for kind, cases in FORBIDDEN.items() for case in cases],
    ids=lambda it: str(getattr(it, "__name__", it)),
)
def test_what_cannot_be_attached_to_says_why(kind: type[ProfdError], case: str) -> None:
    system, words = FORBIDDEN[kind][case]
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
