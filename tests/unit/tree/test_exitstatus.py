"""How real processes ended, learned from outside."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
from support.present import there
from support.synthetic import identity_of

from profd.daemon import processes
from profd.daemon.store.records import Identity
from profd.daemon.tree import exitstatus
from profd.daemon.tree.exitstatus import ProcessWatch

READS_ITS_CODE = "import os, sys; print('ready', flush=True); os._exit(int(input()))"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", READS_ITS_CODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        there(process.stdout).readline()
        yield process
        process.kill()


def end(process: subprocess.Popen[bytes], code: int) -> None:
    stdin = there(process.stdin)
    stdin.write(f"{code}\n".encode())
    stdin.flush()


def test_a_living_process_has_no_status_and_a_signal_is_read_from_the_zombie(
    child: subprocess.Popen[bytes],
) -> None:
    with contextlib.closing(ProcessWatch(identity_of(child.pid))) as watch:
        assert select.select([watch], [], [], 0)[0] == []
        assert watch.status() is None
        child.kill()
        select.select([watch], [], [], 60)
        assert exitstatus.code_and_signal(watch.status()) == (None, signal.SIGKILL)


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_code_is_read_from_the_zombie(child: subprocess.Popen[bytes], code: int) -> None:
    with contextlib.closing(ProcessWatch(identity_of(child.pid))) as watch:
        end(child, code)
        assert select.select([watch], [], [], 60)[0] == [watch]
        assert exitstatus.code_and_signal(watch.status()) == (code, None)
        assert child.wait() == code


def test_a_newer_kernel_still_tells_when_the_zombie_is_gone(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(25, "Inappropriate ioctl for device")

    with contextlib.closing(ProcessWatch(identity_of(child.pid))) as watch:
        end(child, 5)
        child.wait()
        kernel = tuple(int(part) for part in os.uname().release.split(".")[:2])
        assert exitstatus.code_and_signal(watch.status()) == (
            (5, None) if kernel >= (6, 15) else (None, None)
        )
        monkeypatch.setattr("fcntl.ioctl", refuse)
        assert watch.status() is None


def test_a_process_that_is_gone_or_another_under_the_same_pid_is_not_watched(
    child: subprocess.Popen[bytes],
) -> None:
    identity = identity_of(child.pid)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ProcessLookupError):
        ProcessWatch(Identity(identity.pid, identity.start_ticks + 1))
    assert set(os.listdir("/proc/self/fd")) == before
    child.kill()
    child.wait()
    with pytest.raises(ProcessLookupError):
        ProcessWatch(identity)


def test_zero_of_a_zombie_that_is_not_ours_to_see_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zombie = msgspec.structs.replace(
        there(processes.read_stat(os.getpid())), state="Z", exit_status=0
    )
    assert exitstatus.of_zombie(zombie) == 0
    monkeypatch.setattr("os.geteuid", lambda: 4321)
    monkeypatch.setattr(processes, "owner_uid", lambda pid: 1234)
    assert exitstatus.of_zombie(zombie) is None
    assert exitstatus.of_zombie(msgspec.structs.replace(zombie, exit_status=9)) == 9
    assert exitstatus.of_zombie(msgspec.structs.replace(zombie, state="S", exit_status=9)) is None


def test_a_process_that_reuses_the_pid_does_not_hide_the_exit_status(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = ProcessWatch(identity_of(child.pid))
    stat = there(processes.read_stat(child.pid))
    newer = msgspec.structs.replace(stat, start_ticks=stat.start_ticks + 1)
    monkeypatch.setattr(processes, "read_stat", lambda pid: newer)
    note = exitstatus._PIDFD_INFO.pack(exitstatus._PIDFD_INFO_EXIT, *[0] * 12, 3 << 8)
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: note)
    assert watch.status() == 3 << 8
    watch.close()
