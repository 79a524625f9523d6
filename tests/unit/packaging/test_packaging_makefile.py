"""What `make demo` and `make test` do before anything is downloaded, and that they download once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.folders import ROOT

NOTES_ITSELF = '#!/bin/sh\necho "${0##*/} $*" >> "$NOTES"\n'


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the Makefile, a Python that notes how it is called, and a disk with
    room.
    """
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    for name in ("python", "pytest", "profd"):
        make_program(tmp_path / ".venv/bin" / name, NOTES_ITSELF)
    has_free(tmp_path, 100)
    return tmp_path


def make_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def has_free(clone: Path, gigabytes: int) -> None:
    rows = f"echo Filesystem blocks Used Available\necho disk 9 9 {gigabytes << 20} 9% /\n"
    make_program(clone / "programs/df", f"#!/bin/sh\n{rows}")


def make(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{clone / 'programs'}:{os.environ['PATH']}"
    environment = {"PATH": path, "NOTES": str(clone / "notes")}
    return subprocess.run(
        ["make", *words], cwd=clone, env=environment, capture_output=True, text=True
    )


def calls(clone: Path) -> list[str]:
    notes = clone / "notes"
    return notes.read_text().splitlines() if notes.exists() else []


@pytest.mark.requires("make")
@pytest.mark.parametrize("target", ["demo", "test", "check"])
def test_a_disk_that_is_too_small_is_one_line_and_nothing_is_installed(
    clone: Path, target: str
) -> None:
    has_free(clone, 2)
    done = make(clone, target)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make: ")]
    assert len(lines) == 1
    assert "GB have to be free in ., and 2 GB are: make room there" in lines[0]
    assert (done.returncode, calls(clone)) == (2, [])


@pytest.mark.requires("make")
def test_a_second_call_installs_nothing(clone: Path) -> None:
    assert make(clone, "test").returncode == 0
    assert sum("pip install" in call for call in calls(clone)) == 1
    has_free(clone, 0)  # what is installed needs no more room
    for target in ("test", "demo", "try", "test"):
        assert make(clone, target).returncode == 0
    assert sum("pip install" in call for call in calls(clone)) == 1
    assert [call.split()[0] for call in calls(clone)[1:]] == [
        "pytest",
        "pytest",
        "profd",
        "profd",
        "pytest",
    ]


@pytest.mark.requires("make")
def test_what_is_installed_already_needs_no_room_for_a_newer_list_of_packages(clone: Path) -> None:
    (clone / ".venv/lib/python3.11/site-packages/torch").mkdir(parents=True)
    has_free(clone, 1)
    assert make(clone, "test").returncode == 0


@pytest.mark.requires("make")
@pytest.mark.parametrize(
    ("python", "said"),
    [
        ('#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\n', "apt install python3-venv"),
        ('#!/bin/sh\ncase "$*" in *version_info*) exit 1;; esac\n', "is older than 3.10"),
        (None, "is not installed"),
    ],
)
def test_a_python_that_will_not_do_is_one_line(clone: Path, python: str | None, said: str) -> None:
    shutil.rmtree(clone / ".venv")
    if python is not None:
        make_program(clone / "programs/py", python)
    done = make(clone, "demo", "PYTHON=py")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert not (clone / ".venv").exists()
