"""Must hold 8: bad input gives one clear line with its remedy, its exit code, no traceback, and
loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.launches import PROFD
from support.plainuser import as_plain_user, give_to_plain_user
from support.sessions import ready
from support.waiting import DEADLINE_S

from profd.daemon import processes
from profd.daemon.errors import ExitCode
from profd.daemon.rights import Rights

CLOSED = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"  # PR_SET_DUMPABLE
NEITHER = "pass"


def refused(*words: str, before: Sequence[str] = ()) -> tuple[int, str]:
    """Run profd, check that it refuses in one line that begins with its name, and return exit code
    and line.
    """
    ended = subprocess.run(
        [*before, PROFD, *words], input="", capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert ended.stdout == ""
    assert ended.stderr.startswith("profd: "), ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    what, _, remedy = ended.stderr.removeprefix("profd: ").strip().partition(": ")
    assert what
    assert remedy
    return ended.returncode, ended.stderr


@pytest.fixture
def as_plain() -> Iterator[tuple[str, ...]]:
    """Give the words before a command of the plain user's, with a home for profd."""
    with tempfile.TemporaryDirectory(prefix="profd-", ignore_cleanup_errors=True) as folder:
        yield (*as_plain_user(), "env", f"PROFD_HOME={give_to_plain_user(Path(folder))}")


@contextlib.contextmanager
def plain_python(first: str) -> Iterator[int]:
    """Run a Python process of the plain user's that does something first and then waits."""
    code = f"{first}; print('ready', flush=True); input()"
    with ready([*as_plain_user(), sys.executable, "-c", code]) as process:
        yield process.pid


def test_zombie() -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert refused("attach", str(ended.pid))[0] == ExitCode.ZOMBIE


def test_first_process_as_plain_user(as_plain: tuple[str, ...]) -> None:
    if not as_plain_user() and processes.owner_uid(1) == os.getuid():
        pytest.skip("process 1 belongs to this user: a container that runs as one")
    code, line = refused("attach", "1", before=as_plain)
    assert code == ExitCode.OTHER_USER
    assert "belongs to" in line


def test_shell_that_profd_was_started_from_is_not_python() -> None:
    ended = subprocess.run(
        ["sh", "-c", f"{PROFD} attach $$; exit $?"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ended.returncode == ExitCode.NOT_PYTHON


def test_program_that_calls_itself_python_without_being_one(tmp_path: Path) -> None:
    program = tmp_path / "python3.16"
    program.write_bytes(Path("/bin/sleep").resolve().read_bytes())
    program.chmod(0o755)
    with subprocess.Popen([program, "60"]) as process:
        code, line = refused("attach", str(process.pid))
        process.kill()
    assert code == ExitCode.UNSUPPORTED_PYTHON
    assert "Python 3.16" in line


def test_process_that_is_closed_to_its_own_user(as_plain: tuple[str, ...]) -> None:
    with plain_python(CLOSED) as pid:
        code, line = refused("attach", str(pid), before=as_plain)
    assert code == ExitCode.MISSING_CAPABILITY
    assert "SYS_PTRACE" in line or "sudo" in line


@pytest.mark.skipif(
    Rights().ptrace_scope() == 0, reason="this kernel has no Yama, or lets everyone attach"
)
def test_ptrace_scope_forbids(as_plain: tuple[str, ...]) -> None:
    with plain_python(NEITHER) as pid:
        code, line = refused("attach", str(pid), before=as_plain)
    assert code == ExitCode.PTRACE_SCOPE
    assert "kernel.yama.ptrace_scope" in line
