"""What a script reads, writes and finds around itself is the same with and without `profd run`."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import launches
from support.waiting import DEADLINE_S

SURROUNDINGS = """
import json, os, re, sys
def links():
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            yield fd, os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            pass
status = open("/proc/self/status").read()
json.dump({
    "argv": sys.argv,
    "cwd": os.getcwd(),
    "environment": dict(item.split("=", 1) for item in open("/proc/self/environ").read().split("\\0") if item),
    "descriptors": list(links()),
    "group": os.getpgrp(),
    "session": os.getsid(0),
    "umask": os.umask(0),
    "priority": os.nice(0),
    "oom": open("/proc/self/oom_score_adj").read(),
    "signals": re.findall(r"^Sig(?:Blk|Ign|Cgt):.*$", status, re.M),
}, sys.stdout)
"""


@pytest.fixture
def inherited_fd() -> Iterator[int]:
    """Open a descriptor that a script is to inherit."""
    read_fd, write_fd = os.pipe()
    os.set_inheritable(read_fd, True)
    yield read_fd
    os.close(read_fd)
    os.close(write_fd)


def surroundings(
    command: list[str], inherited_fd: int, cwd: Path, environment: dict[str, str]
) -> dict[str, Any]:
    """Return what a script finds when it is started with these words."""
    with (cwd / "in").open("w+b") as file:
        done = subprocess.run(
            [*command, sys.executable, "-c", SURROUNDINGS, "--epochs", "3", "ünï"],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=file,
            cwd=cwd,
            env=environment,
            pass_fds=[inherited_fd],
            umask=0o027,
            check=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    found["descriptors"] = [
        item for item in found["descriptors"] if item[0] != 1
    ]  # a pipe of this very call
    return found


@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C"}, {"LC_CTYPE": "C.UTF-8"}])
def test_surroundings_are_the_same(
    inherited_fd: int, tmp_path: Path, locale: dict[str, str]
) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG"))}
    environment = {**kept, **locale}
    without = surroundings([], inherited_fd, tmp_path, environment)
    profiled = [launches.PROFD, "run", "--headless", "--quiet", "--"]
    assert surroundings(profiled, inherited_fd, tmp_path, environment) == without


ENVIRONMENTS: list[list[str | bytes]] = [
    ["A=1", "EMPTY=", "LINES=a\nb", b"BYTES=\xff\xfe"],
    ["-i", "A.B=1", "BASH_FUNC_module%%=() { echo noise; }", "=x=y"],
    ["-i", "LC_ALL=C"],
    ["-u", "PATH"],
    ["-i", "LANG=C.UTF-8"],
    ["SHLVL=77", "PWD=/nowhere", "OLDPWD=/nowhere", "_=mine"],
    ["BASH_ENV=/dev/stdin", "ENV=/dev/stdin", "SHELLOPTS=xtrace"],
    ["PYTHONHOME=/nowhere", "PYTHONPATH=/nowhere"],
    [
        "PYTHONVERBOSE=1",
        "PYTHONINSPECT=1",
        "PYTHONTRACEMALLOC=5",
        "PYTHONPROFILEIMPORTTIME=1",
        "PYTHONMALLOCSTATS=1",
    ],
    [
        "PYTHONIOENCODING=bogus",
        "PYTHONUTF8=7",
        "PYTHONHASHSEED=bogus",
        "PYTHONMALLOC=bogus",
        "PYTHONWARNINGS=error",
    ],
    ["LD_PRELOAD=libm.so.6", "LD_LIBRARY_PATH=/nowhere"],
    ["BIG=" + "x" * 120_000, "PROFD_ENTRY_0=mine", "PROFD_ENTRY_1=mine"],
]


@pytest.mark.parametrize("variables", ENVIRONMENTS, ids=lambda variables: str(variables[-1])[:20])
def test_the_environment_is_the_same_byte_for_byte(variables: list[str | bytes]) -> None:
    """What is set for the script's Python reaches neither profd nor, by profd, its output."""
    home, plain = [f"PROFD_HOME={os.environ['PROFD_HOME']}"], ["env", "-0"]
    profiled = [launches.PROFD, "run", "--headless", "--quiet", "--", *plain]
    without, done = (
        subprocess.run(["env", *variables, *home, *words], capture_output=True, timeout=DEADLINE_S)
        for words in (plain, profiled)
    )
    assert (done.returncode, done.stdout) == (0, without.stdout)
    assert b"Traceback" not in done.stderr


def test_input_reaches_the_script() -> None:
    code = "import sys; print(sys.stdin.buffer.read()[::-1].hex())"
    done = launches.run(*launches.PYTHON, code, given=bytes(range(256)) * 1000)
    assert done.stdout == (bytes(range(256)) * 1000)[::-1].hex().encode() + b"\n"


def test_output_is_the_same_byte_for_byte() -> None:
    code = """
import sys
for number in range(300):
    sys.stdout.buffer.write(bytes((number * i) % 256 for i in range(256)) * 256)
    if number % 100 == 0:
        sys.stderr.buffer.write(bytes(range(256)))
"""
    without = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    done = launches.run("--quiet", sys.executable, "-c", code)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(without.stdout).digest()
    assert len(done.stdout) == 300 * 65536
    assert done.stderr == without.stderr


def test_closed_stderr_changes_nothing() -> None:
    done = launches.run(*launches.PYTHON, "print(1)", before=lambda: os.close(2))
    assert (done.returncode, done.stdout) == (0, b"1\n")


def test_pipe_ends_with_the_script() -> None:
    """None of profd's processes holds on to what the script writes to."""
    launched = launches.start(*launches.PYTHON, launches.WAITING)
    launches.read_ready(launched)
    assert launched.stdin is not None
    assert launched.stdout is not None
    session_pid = launches.session_pid(launched.pid)
    os.kill(session_pid, signal.SIGSTOP)
    try:
        launched.stdin.write(b"\n")
        launched.stdin.flush()
        assert launched.stdout.read() == b"done\n"
    finally:
        os.kill(session_pid, signal.SIGCONT)
    launches.finish(launched)
