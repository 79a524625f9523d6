"""What the kernel says of real processes and of made-up copies of its files."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.interpreters import Standing, standing
from support.present import there
from support.sessions import ready

from profd.daemon import processes
from profd.daemon.rights import Rights


@pytest.fixture
def sleeper() -> Iterator[Standing]:
    """Run a process that has executed its program and waits."""
    with standing() as process:
        yield process


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a /proc in the place of the real one, and return the folder of this process in it."""
    monkeypatch.setattr(processes, "PROC", tmp_path)
    folder = tmp_path / "self"
    folder.mkdir()
    return folder


def test_own_credentials_are_known_and_nobody_is_not_hidden() -> None:
    found = there(Rights().credentials(os.getpid()))
    assert (found.tgid, found.state, found.is_kernel_thread) == (os.getpid(), "R", False)
    assert found.uids == os.getresuid()
    assert not Rights().is_hidden(2**40)


def test_nobody_has_no_credentials_and_no_memory(sleeper: Standing) -> None:
    sleeper.end()
    assert Rights().credentials(sleeper.pid) is None
    assert not Rights().is_hidden(sleeper.pid)
    assert Rights().read_memory(sleeper.pid) != 0


def test_zombie_is_no_kernel_thread(sleeper: Standing) -> None:
    os.kill(sleeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    found = there(Rights().credentials(sleeper.pid))
    assert (found.state, found.is_kernel_thread) == ("Z", False)


def test_descendants_reach_over_generations_and_leave_this_process_out() -> None:
    code = (
        "import subprocess, sys; subprocess.run(['sh', '-c', 'sleep 60 & echo ready; wait'], "
        "stdin=sys.stdin)"
    )
    parent = os.getppid()
    with ready([sys.executable, "-c", code]) as process:
        assert len(list(Rights().descendants(process.pid))) == 2
        assert process.pid not in Rights().descendants(parent)
        assert os.getpid() not in Rights().descendants(parent)


@pytest.mark.parametrize(
    ("mask", "capable"), [("0000000000000000", False), ("0000000000080000", True)]
)
def test_capability_is_read_from_the_effective_set(own: Path, mask: str, capable: bool) -> None:
    status = f"CapPrm:\tffffffffffffffff\nCapEff:\t{mask}\nCapBnd:\tffffffffffffffff\n"
    (own / "status").write_text(status)
    assert Rights().may_read_all() is capable


def test_ptrace_scope_is_read_and_is_0_without_yama(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profd.daemon.rights._YAMA", tmp_path / "scope")
    assert Rights().ptrace_scope() == 0
    (tmp_path / "scope").write_text("1\n")
    assert Rights().ptrace_scope() == 1


def test_a_filter_is_one_of_seccomp_that_forbids_what_the_kernel_would_allow(own: Path) -> None:
    status = "Name:\tpython\nSeccomp:\t{}\nSeccomp_filters:\t1\n"
    rights, other = Rights(), own.parent / "7"
    (own / "status").write_text(status.format(2))
    other.mkdir()
    assert not rights.is_filtered(7)  # closed by the kernel itself
    (other / "mem").touch()
    assert rights.is_filtered(7)
    (own / "status").write_text(status.format(0))
    assert not rights.is_filtered(7)


def test_a_security_module_is_one_that_enforces(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.daemon.rights._SELINUX", own)
    rights = Rights()
    assert rights.security_module() == ""
    (own / "attr").mkdir()
    (own / "attr/current").write_bytes(b"docker-default (enforce)\n")
    assert rights.security_module() == "AppArmor"
    (own / "attr/current").write_bytes(b"unconfined\n")
    assert rights.security_module() == ""
    (own / "enforce").write_text("1")
    assert rights.security_module() == "SELinux"
    # An unconfined process is kept from nothing, unless nobody may trace.
    (own / "attr/current").write_bytes(b"unconfined_u:unconfined_r:unconfined_t:s0\n")
    assert rights.security_module() == ""
    (own / "booleans").mkdir()
    (own / "booleans/deny_ptrace").write_text("1 1")
    assert rights.security_module() == "SELinux"


WITHOUT = [sys.executable, "-m", "profd.daemon.rights"]


@pytest.mark.requires("root")
def test_a_program_has_no_capability_and_keeps_its_user() -> None:
    status = subprocess.run(
        [*WITHOUT, "/bin/sh", "-c", "cat /proc/self/status"], capture_output=True, text=True
    ).stdout
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert {int(fields[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Uid"].split()[1] == str(os.geteuid())


@pytest.mark.requires("root")
def test_root_reads_its_own_secrets_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a file needs no capability to read it."""
    if ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) < 0:
        pytest.skip("this kernel has no Landlock")
    # Temporary files may be read, and this folder is one.
    monkeypatch.setenv("PROFD_HOME", str(tmp_path))
    secret = Path.home() / f"profd-test-{os.getpid()}"
    secret.write_text("secret")
    try:
        for file in ("/etc/shadow", str(secret)):
            assert subprocess.run(["cat", file], capture_output=True).returncode == 0
            found = subprocess.run([*WITHOUT, "/bin/cat", file], capture_output=True)
            assert (found.stdout, b"denied" in found.stderr) == (b"", True)
            assert (
                subprocess.run(
                    [*WITHOUT, "/bin/sh", "-c", f"echo >> {file}"], capture_output=True
                ).returncode
                != 0
            )
    finally:
        secret.unlink()
    (tmp_path / "runs").mkdir()
    assert (
        subprocess.run([*WITHOUT, "/usr/bin/touch", str(tmp_path / "runs" / "a")]).returncode == 0
    )
    assert (
        subprocess.run(
            [*WITHOUT, sys.executable, "-c", "import json, ssl, profd.cli.main"]
        ).returncode
        == 0
    )


@pytest.mark.requires("root", "setpriv")
def test_root_can_no_longer_become_another_user_nor_read_what_is_theirs_alone(
    tmp_path: Path,
) -> None:
    theirs = tmp_path / "theirs"
    theirs.touch(mode=0o600)
    os.chown(theirs, 65534, 65534)
    for words in (["setpriv", "--reuid=65534", "true"], ["cat", str(theirs)]):
        assert subprocess.run(words, capture_output=True).returncode == 0
        assert (
            subprocess.run([*WITHOUT, "/usr/bin/env", *words], capture_output=True).returncode != 0
        )
