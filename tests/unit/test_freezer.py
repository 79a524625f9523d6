"""Whether a thread is frozen with its control group, by made-up files of the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profd.daemon import freezer, processes
from profd.daemon.freezer import is_frozen

NANOSLEEP = "hrtimer_nanosleep"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(processes, "PROC", tmp_path)
    freezer._mounted.cache_clear()
    (tmp_path / "7/task/8").mkdir(parents=True)
    (tmp_path / "self").mkdir()
    yield tmp_path
    freezer._mounted.cache_clear()


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
