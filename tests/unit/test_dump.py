"""One look at stacks: with the real py-spy, and with ones that fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from profd.daemon.collect.stacks import dump
from profd.daemon.collect.stacks.dump import DumpFailed, take_dump

WAITING = "def wait():\n    print('ready', flush=True)\n    input()\nwait()"
THREADS = (
    '[{"thread_id": 1, "os_thread_id": null, "thread_name": null, "active": true, "owns_gil": false, "frames": []}]'
)


def py_spy_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a shell script in the place of py-spy."""
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(dump, "find_py_spy", lambda: str(program))


def test_stack_of_a_waiting_process_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (thread,) = take_dump(process.pid)
    assert [(frame.name, frame.line) for frame in thread.frames] == [("wait", 3), ("<module>", 4)]


def test_look_that_fails_once_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    py_spy_that(tmp_path, monkeypatch, f"test -e again && echo '{THREADS}' && exit; touch again; exit 1")
    (thread,) = take_dump(1)
    assert (thread.thread_name, thread.os_thread_id) == (None, None)


def test_look_that_always_fails_says_why_on_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Error: Failed to open\\nCaused by:\\n    0: Permission denied\\n    1: deeper\\n\\nBacktrace:\\n   0: main"
    py_spy_that(tmp_path, monkeypatch, f"printf '{said}' >&2; exit 1")
    with pytest.raises(DumpFailed, match=r"^Failed to open \(Permission denied\)$"):
        take_dump(1)


def test_py_spy_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "_TIMEOUT_S", 0.2)
    py_spy_that(tmp_path, monkeypatch, "exec sleep 60")
    with pytest.raises(DumpFailed, match="did not answer"):
        take_dump(1)
