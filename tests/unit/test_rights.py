"""What the kernel says of real processes and of made-up copies of its files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profd.daemon.rights import Rights


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that has executed its program and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def proc_with(folder: Path, **files: str) -> Path:
    """Make a /proc in which this process has these files."""
    own = folder / "self"
    own.mkdir()
    for name, text in files.items():
        (own / name).write_text(text)
    return folder


def test_own_credentials_are_known_and_nobody_is_not_hidden() -> None:
    found = Rights().credentials(os.getpid())
    assert found is not None
    assert (found.tgid, found.state, found.is_kernel_thread) == (os.getpid(), "R", False)
    assert found.uids == os.getresuid()
    assert not Rights().is_hidden(2**40)


def test_nobody_has_no_credentials_and_no_memory(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    assert Rights().credentials(sleeper.pid) is None
    assert not Rights().is_hidden(sleeper.pid)
    assert Rights().read_memory(sleeper.pid) != 0


def test_zombie_is_no_kernel_thread(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    found = Rights().credentials(sleeper.pid)
    assert found is not None
    assert (found.state, found.is_kernel_thread) == ("Z", False)


def test_memory_of_a_child_is_readable(sleeper: subprocess.Popen[bytes]) -> None:
    assert Rights().read_memory(sleeper.pid) == 0


def test_descendants_reach_over_generations_and_leave_this_process_out() -> None:
    code = "import subprocess, sys; subprocess.run(['sh', '-c', 'sleep 60 & echo ready; wait'], stdin=sys.stdin)"
    parent = os.getppid()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            assert len(list(Rights().descendants(process.pid))) == 2
            assert process.pid not in Rights().descendants(parent)
            assert os.getpid() not in Rights().descendants(parent)
        finally:
            os.killpg(process.pid, 9)


@pytest.mark.parametrize(("mask", "capable"), [("0000000000000000", False), ("0000000000080000", True)])
def test_capability_is_read_from_the_effective_set(tmp_path: Path, mask: str, capable: bool) -> None:
    status = f"CapPrm:\tffffffffffffffff\nCapEff:\t{mask}\nCapBnd:\tffffffffffffffff\n"
    assert Rights(proc=proc_with(tmp_path, status=status)).may_read_all() is capable


def test_ptrace_scope_is_read_and_is_0_without_yama(tmp_path: Path) -> None:
    assert Rights(yama=tmp_path / "nothing").ptrace_scope() == 0
    (tmp_path / "scope").write_text("1\n")
    assert Rights(yama=tmp_path / "scope").ptrace_scope() == 1


@pytest.mark.parametrize(
    ("group", "container"),
    [("0::/user.slice/session.scope", False), ("0::/docker/0123abcd", True), ("4:cpu:/kubepods/pod1/x", True)],
)
def test_container_is_known_by_its_control_group(
    tmp_path: Path, group: str, container: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profd.daemon.rights._CONTAINER_MARKS", (tmp_path / "nothing",))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert Rights(proc=proc_with(tmp_path, cgroup=group)).in_container() is container


WITHOUT = [sys.executable, "-m", "profd.daemon.rights"]


@pytest.mark.requires("root")
def test_a_program_has_none_and_stays_who_it_was() -> None:
    told = subprocess.run([*WITHOUT, "/bin/sh", "-c", "cat /proc/self/status"], capture_output=True, text=True).stdout
    fields = dict(line.split(":", 1) for line in told.splitlines())
    assert {int(fields[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Uid"].split()[1] == str(os.geteuid())


@pytest.mark.requires("root", "setpriv")
def test_root_can_no_longer_become_another_user_nor_read_what_is_theirs_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.touch(mode=0o600)
    os.chown(theirs, 65534, 65534)
    for words in (["setpriv", "--reuid=65534", "true"], ["cat", str(theirs)]):
        assert subprocess.run(words, capture_output=True).returncode == 0
        assert subprocess.run([*WITHOUT, "/usr/bin/env", *words], capture_output=True).returncode != 0
