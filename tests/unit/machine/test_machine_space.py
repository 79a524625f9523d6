"""Room on file systems, and that a network file system is never asked."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from support.procfiles import TARGET, files_of, read, values

from profd.daemon.machine.machine import Space

MOUNTS = "/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n{} /data\\040sets {} rw 0 0\n"


class Asked:
    """Answers in the place of the kernel, and keeps who was asked about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file_system: str, folder: str = "/data sets/run 1") -> None:
        self.paths: list[str] = []
        files_of(monkeypatch, {f"/proc/{TARGET.pid}/mounts": MOUNTS.format("server:/x", file_system)})
        monkeypatch.setattr(os, "readlink", lambda path: folder)
        monkeypatch.setattr(os, "statvfs", self.statvfs)

    def statvfs(self, path: str) -> SimpleNamespace:
        self.paths.append(path)
        return SimpleNamespace(f_blocks=100, f_bavail=30, f_bfree=40, f_frsize=4096)


def test_shared_memory_and_the_target_s_folder_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, "xfs")
    assert values(read(Space(), TARGET)) == {
        "shm_used_bytes": 70 * 4096,
        "shm_total_bytes": 100 * 4096,
        "disk_used_bytes@/data sets": 70 * 4096,
        "disk_total_bytes@/data sets": 100 * 4096,
    }
    assert asked.paths == [f"/proc/{TARGET.pid}/root/dev/shm", f"/proc/{TARGET.pid}/cwd"]


@pytest.mark.parametrize("file_system", ["nfs4", "nfs", "fuse.sshfs", "lustre", "cifs", "ceph", "9p"])
def test_a_network_file_system_is_never_asked(monkeypatch: pytest.MonkeyPatch, file_system: str) -> None:
    asked = Asked(monkeypatch, file_system)
    assert values(read(Space(), TARGET)).keys() == {"shm_used_bytes", "shm_total_bytes"}
    assert asked.paths == [f"/proc/{TARGET.pid}/root/dev/shm"]


def test_a_local_folder_beside_a_network_mount_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(monkeypatch, "nfs4", folder="/data sets 2")
    assert "disk_used_bytes@/" in values(read(Space(), TARGET))


def test_a_target_that_is_gone_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    files_of(monkeypatch)
    assert read(Space(), TARGET) == []
    assert read(Space()) == []
