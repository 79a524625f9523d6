"""Which running processes are offered: seen with real ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profd.daemon import processes
from profd.daemon.secrets import CUT, WORD_CHARACTERS
from profd.daemon.tree.attachable import find_attachable

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
