"""Which running processes are offered: seen with real ones."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fakesystem import ADA, BOB, ROOT, FakeProcess, FakeSystem

from profd.daemon import processes
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
child = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); input()"])
child.wait()
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python process with a Python child; the child says when both run."""
    script = tmp_path / "train.py"
    script.write_text(PARENT)
    words = [sys.executable, str(script), "--token", "hunter2"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


def child_of(pid: int) -> int:
    """Return the PID of the only child."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def test_process_is_found_with_its_secrets_masked(family: subprocess.Popen[bytes]) -> None:
    (found,) = [process for process in find_attachable() if process.pid == family.pid]
    assert found.command[-2:] == ("--token", "***")
    assert found.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert 0 <= found.age_s < 60


def test_a_command_as_long_as_the_kernel_takes_is_offered_cut() -> None:
    longest = "x" * ((128 << 10) - 1)
    with subprocess.Popen(
        [sys.executable, "-c", "print('ready', flush=True); input()", longest],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (found,) = [one for one in find_attachable() if one.pid == process.pid]
    assert found.command[-1] == f"{longest[:WORD_CHARACTERS]}{CUT}"


def test_child_is_covered_by_its_parent(family: subprocess.Popen[bytes]) -> None:
    assert child_of(family.pid) not in [process.pid for process in find_attachable()]


def test_training_child_of_a_launcher_is_offered_first(
    family: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def of_one(process: FakeProcess, **facts: int) -> FakeSystem:
    return FakeSystem({PID: process}, **facts)  # type: ignore[arg-type]


def bash(**facts: object) -> FakeProcess:
    return FakeProcess(**{"name": "bash", "executable": "/bin/bash", "python": None, **facts})  # type: ignore[arg-type]


def test_own_python_is_attachable() -> None:
    check_attachable(PID, of_one(FakeProcess()))


def test_no_process() -> None:
    error = failure(FakeSystem({}))
    assert isinstance(error, NoSuchProcess)
    assert str(PID) in error.what


def test_thread_is_no_process_and_names_its_own() -> None:
    error = failure(of_one(FakeProcess(tgid=4000)))
    assert isinstance(error, NoSuchProcess)
    assert "profd attach 4000" in error.remedy


def test_zombie() -> None:
    assert isinstance(failure(of_one(FakeProcess(state="Z", executable=None, python=None))), ZombieProcess)


def test_process_hidden_from_us_is_another_users() -> None:
    assert isinstance(failure(FakeSystem({}, hidden=True)), OtherUsersProcess)


def test_other_user_comes_before_what_the_process_is() -> None:
    error = failure(of_one(bash(uids=(BOB, BOB, BOB))))
    assert isinstance(error, OtherUsersProcess)
    assert "sudo" in error.remedy


def test_setuid_process_of_our_own() -> None:
    error = failure(of_one(FakeProcess(uids=(ADA, ROOT, ROOT))))
    assert isinstance(error, OtherUsersProcess)
    assert "setuid" in error.what


def test_other_users_process_is_attachable_with_the_capability() -> None:
    check_attachable(PID, of_one(FakeProcess(uids=(BOB, BOB, BOB)), capable=True))


def test_shell_alone_is_not_python_and_is_named() -> None:
    error = failure(of_one(bash()))
    assert isinstance(error, NotPython)
    assert "bash" in error.what


def test_kernel_thread_is_not_python() -> None:
    error = failure(of_one(bash(name="kworker/0:1", executable=None, is_kernel_thread=True), uid=ROOT, capable=True))
    assert isinstance(error, NotPython)
    assert "kernel" in error.what


def test_launcher_of_python_is_attachable() -> None:
    check_attachable(PID, FakeSystem({PID: bash(children=[2]), 2: bash(children=[3]), 3: FakeProcess()}))


def test_launcher_of_unreadable_python_says_why() -> None:
    system = FakeSystem({PID: bash(children=[2]), 2: FakeProcess(denied=errno.EPERM)}, scope=1)
    assert isinstance(failure(system), PtraceScopeForbids)


def test_one_readable_python_below_a_launcher_is_enough() -> None:
    processes = {PID: bash(children=[2, 3]), 2: FakeProcess(py_spy_says="Unsupported version of Python: 3.16.0")}
    check_attachable(PID, FakeSystem({**processes, 3: FakeProcess()}))


def test_pypy_is_not_supported() -> None:
    error = failure(of_one(FakeProcess("pypy3", executable="/opt/bin/pypy3.10", python=None)))
    assert isinstance(error, UnsupportedPython)
    assert "CPython" in error.remedy


def test_version_that_py_spy_does_not_read_is_named() -> None:
    error = failure(of_one(FakeProcess(py_spy_says="Unsupported version of Python: 3.16.0")))
    assert isinstance(error, UnsupportedPython)
    assert "3.16.0" in error.what


def test_python_that_py_spy_cannot_find_is_not_supported() -> None:
    said = "Failed to find python version from target process"
    assert isinstance(failure(of_one(FakeProcess(python="", py_spy_says=said))), UnsupportedPython)


def test_unlucky_moment_is_no_reason() -> None:
    check_attachable(PID, of_one(FakeProcess(py_spy_says="Failed to copy PyCodeObject (Bad address)")))


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


def test_ptrace_scope_3_binds_even_the_capable() -> None:
    system = of_one(FakeProcess(denied=errno.EPERM), scope=3, uid=ROOT, capable=True)
    assert isinstance(failure(system), PtraceScopeForbids)


def test_ptrace_scope_that_lets_us_read_is_no_obstacle() -> None:
    check_attachable(PID, of_one(FakeProcess(), scope=1))


def test_ptrace_scope_that_stops_py_spy_alone_is_named() -> None:
    process = FakeProcess(py_spy_says="Permission Denied: Try running again with elevated permissions")
    assert isinstance(failure(of_one(process, scope=1)), PtraceScopeForbids)


def test_container_without_the_capability() -> None:
    error = failure(of_one(FakeProcess(uids=(ROOT, ROOT, ROOT), denied=errno.EPERM), uid=ROOT, container=True))
    assert isinstance(error, MissingCapability)
    assert "--cap-add SYS_PTRACE" in error.remedy


def test_root_of_a_container_lacks_a_capability_and_not_a_user() -> None:
    error = failure(of_one(FakeProcess(uids=(BOB, BOB, BOB), denied=errno.EPERM), uid=ROOT, container=True))
    assert isinstance(error, MissingCapability)


def test_process_that_is_closed_to_its_own_user() -> None:
    error = failure(of_one(FakeProcess(executable=None, python=None, denied=errno.EACCES)))
    assert isinstance(error, MissingCapability)
    assert "undumpable" in error.what


def test_security_module_stops_the_capable() -> None:
    error = failure(of_one(FakeProcess(denied=errno.EPERM), uid=ROOT, capable=True))
    assert isinstance(error, MissingCapability)
    assert "security module" in error.what


def test_process_that_ends_while_looked_at() -> None:
    assert isinstance(failure(of_one(FakeProcess(denied=errno.ESRCH))), NoSuchProcess)
