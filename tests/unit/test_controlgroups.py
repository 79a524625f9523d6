"""Control groups of both versions, as containers, batch systems and plain machines have them, and
threads frozen with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.procfiles import ProcFiles, files_of

from profd.daemon import controlgroups, processes
from profd.daemon.controlgroups import Hierarchy, groups_of, hierarchies, is_frozen

VERSION_2 = Hierarchy(2, frozenset({"rw"}), "/", "/sys/fs/cgroup")
MEMORY_1 = Hierarchy(1, frozenset({"rw", "memory"}), "/", "/sys/fs/cgroup/memory")
CPU_1 = Hierarchy(1, frozenset({"rw", "cpu", "cpuacct"}), "/", "/sys/fs/cgroup/cpu,cpuacct")
UNIFIED = Hierarchy(2, frozenset({"rw"}), "/", "/sys/fs/cgroup/unified")


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> ProcFiles:
    return files_of(monkeypatch)


def test_hierarchies_are_found_among_the_mounts(files: ProcFiles) -> None:
    assert hierarchies() == []
    files.contents["/proc/self/mountinfo"] = (
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
        "36 31 0:33 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
        "cut off"
    )
    assert hierarchies() == [
        MEMORY_1,
        Hierarchy(2, frozenset({"rw", "nsdelegate"}), "/docker/ab", "/sys/fs/cgroup"),
    ]


def folders(files: ProcFiles, text: str, controller: str, *mounted: Hierarchy) -> list[str]:
    files.contents["/proc/5/cgroup"] = text
    return [group.folder for group in groups_of(5, controller, mounted)]


def test_where_both_versions_are_there_a_controller_has_one(files: ProcFiles) -> None:
    text = "5:cpu,cpuacct:/b\n4:memory:/a\n1:name=systemd:/x\n0::/z\n"
    mounted = (UNIFIED, MEMORY_1, CPU_1)
    assert folders(files, text, "memory", *mounted)[0] == "/sys/fs/cgroup/memory/a"
    assert folders(files, text, "cpu", *mounted)[0] == "/sys/fs/cgroup/cpu,cpuacct/b"
    assert folders(files, text, "io", *mounted)[0] == "/sys/fs/cgroup/unified/z"


@pytest.mark.parametrize(
    ("root", "path"), [("/docker/ab", "/docker/ab"), ("/", "/../../outside"), ("/pod", "/else")]
)
def test_a_container_sees_its_own_group_at_the_mount_point(
    files: ProcFiles, root: str, path: str
) -> None:
    inside = VERSION_2._replace(root=root)
    assert folders(files, f"0::{path}\n", "memory", inside) == ["/sys/fs/cgroup"]


def test_a_process_is_in_its_group_and_in_all_above_once_it_is_there(files: ProcFiles) -> None:
    assert groups_of(5, "memory", [VERSION_2]) == []
    found = folders(files, "0::/user.slice/job 1:2/step\n", "memory", VERSION_2)
    base = "/sys/fs/cgroup"
    assert found == [
        f"{base}/user.slice/job 1:2/step",
        f"{base}/user.slice/job 1:2",
        f"{base}/user.slice",
        base,
    ]


NANOSLEEP = "hrtimer_nanosleep"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(processes, "PROC", tmp_path)
    controlgroups._mounted.cache_clear()
    (tmp_path / "7/task/8").mkdir(parents=True)
    (tmp_path / "self").mkdir()
    yield tmp_path
    controlgroups._mounted.cache_clear()


@pytest.mark.parametrize(
    ("wchan", "expected"),
    [
        ("do_freezer_trap", True),
        ("get_signal", True),
        ("__refrigerator", True),
        (NANOSLEEP, False),
        ("0", False),
    ],
)
def test_the_function_that_it_is_in_says_so(proc: Path, wchan: str, expected: bool) -> None:
    (proc / "7/task/8/wchan").write_text(wchan)
    assert is_frozen(7, 8) == expected
    assert not is_frozen(7, 9)


@pytest.mark.parametrize(
    ("mounted", "root", "group", "file", "state", "expected"),
    [
        ("cgroup cgroup rw,freezer", "/", "3:freezer:/a/b", "a/b/freezer.state", "FROZEN\n", True),
        ("cgroup cgroup rw,freezer", "/", "3:freezer:/a/b", "a/b/freezer.state", "THAWED\n", False),
        (
            "cgroup cgroup rw,freezer",
            "/docker/1",
            "3:freezer:/docker/1/b",
            "b/freezer.state",
            "FROZEN\n",
            True,
        ),
        ("cgroup2 cgroup2 rw", "/", "0::/a", "a/cgroup.events", "populated 1\nfrozen 1\n", True),
        ("cgroup2 cgroup2 rw", "/", "0::/a", "a/cgroup.events", "populated 1\nfrozen 0\n", False),
        ("cgroup cgroup rw,memory", "/", "3:memory:/a", "a/freezer.state", "FROZEN\n", False),
    ],
)
def test_of_a_thread_that_was_frozen_in_its_sleep_its_group_says_so(
    proc: Path,
    tmp_path: Path,
    mounted: str,
    root: str,
    group: str,
    file: str,
    state: str,
    expected: bool,
) -> None:
    mount = tmp_path / "groups"
    (proc / "self/mountinfo").write_text(
        f"30 1 0:1 / / rw - tmpfs none rw\n31 1 0:2 {root} {mount} rw - {mounted}\n"
    )
    (proc / "7/task/8/wchan").write_text(NANOSLEEP)
    (proc / "7/cgroup").write_text(f"9:pids:/\n{group}\n")
    (mount / file).parent.mkdir(parents=True)
    (mount / file).write_text(state)
    assert is_frozen(7, 8) == expected


def test_on_a_machine_with_both_versions_either_may_freeze(proc: Path, tmp_path: Path) -> None:
    (proc / "self/mountinfo").write_text(
        f"31 1 0:2 / {tmp_path}/old rw - cgroup cgroup rw,freezer\n"
        f"32 1 0:3 / {tmp_path}/new rw - cgroup2 cgroup2 rw\n"
    )
    (proc / "7/task/8/wchan").write_text(NANOSLEEP)
    (proc / "7/cgroup").write_text("3:freezer:/a\n0::/b\n")
    old, new = tmp_path / "old/a/freezer.state", tmp_path / "new/b/cgroup.events"
    for file in (old, new):
        file.parent.mkdir(parents=True)
    for said, expected in (
        ("THAWED\nfrozen 0", False),
        ("FROZEN\nfrozen 0", True),
        ("THAWED\nfrozen 1", True),
    ):
        for file, state in zip((old, new), said.splitlines(), strict=True):
            file.write_text(f"{state}\n")
        assert is_frozen(7, 8) == expected
