"""What is said where gdb does not do what it was asked for: it is a script here, and the process only waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profd.daemon.errors import MissingTool
from profd.daemon.windows import gdb
from profd.daemon.windows.failure import WindowFailed
from profd.daemon.windows.gdb import Calls, Text

CALLS = Calls(0x1000, 0x2000, 0x3000)
TEXT = Text(b"pass\n", 0x7000, 4096)


@pytest.fixture
def pid() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def pretend(tools: Path, *lines: str) -> None:
    """Make a gdb that says these lines."""
    script = tools / "gdb"
    script.write_text(f"#!{sys.executable}\nprint({chr(10).join(lines)!r})\n")
    script.chmod(0o700)


async def test_without_gdb_the_remedies_are_said(pid: int, tools: Path) -> None:
    with pytest.raises(MissingTool, match=r"install gdb, or restart the command with `profd run --torch-window"):
        await gdb.execute(pid, TEXT, CALLS)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (["ptrace: Operation not permitted."], "does not let gdb attach .* --cap-add SYS_PTRACE"),
        (["profd page ffffffffffffffef"], "was given no memory at 0x7000"),
        (["profd page 7000", "profd queued -1"], "the queue of calls .* is full"),
        (["warning: old", "[New LWP 7]", "Cannot access memory at address 0x7000"], "Cannot access memory"),
        (["profd page 7000", "Restoring binary file"], "gdb could not do it .Restoring"),
        ([], "it said nothing"),
    ],
)
async def test_what_gdb_says_becomes_an_error_with_its_reason(
    pid: int, tools: Path, said: list[str], meant: str
) -> None:
    pretend(tools, *said)
    with pytest.raises(WindowFailed, match=meant):
        await gdb.execute(pid, TEXT, CALLS)


async def test_queued_call_is_all_that_is_wanted(pid: int, tools: Path) -> None:
    pretend(tools, "profd page 7000", "profd queued 0")
    await gdb.execute(pid, TEXT, CALLS)


async def test_gdb_reads_no_symbols_and_is_served_first(
    pid: int, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urged: list[int] = []
    monkeypatch.setattr("os.setpriority", lambda which, who, niceness: urged.append(niceness))
    words = tmp_path / "words"
    script = tools / "gdb"
    script.write_text(f'#!/bin/sh\necho "$@" > {words}\necho profd queued 0\n')
    script.chmod(0o700)
    await gdb.execute(pid, TEXT, CALLS)
    assert urged == [-10]
    assert "-readnever" in words.read_text().split()


async def test_gdb_may_be_refused_to_be_served_first(pid: int, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, who: int, niceness: int) -> None:
        raise PermissionError

    monkeypatch.setattr("os.setpriority", refuse)
    pretend(tools, "profd queued 0")
    await gdb.execute(pid, TEXT, CALLS)


async def test_process_that_is_gone_is_said(tools: Path) -> None:
    pretend(tools)
    with pytest.raises(WindowFailed, match="cannot be looked at"):
        await gdb.execute(1 << 22, TEXT, CALLS)


def test_interpreter_without_the_functions_is_said(pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.daemon.windows.symbols.find", lambda pid, names: {"mmap": 1})
    with pytest.raises(WindowFailed, match="has no Py_AddPendingCall that can be found"):
        gdb.find_calls(pid)


def test_text_has_room_for_itself_and_its_end(pid: int) -> None:
    for length in (10, 4095, 4096, 9000):
        text = gdb.lay_out(pid, lambda page, size, length=length: f"{page}{size}".ljust(length))  # type: ignore[misc]
        assert text.page_bytes % 4096 == text.page % 4096 == 0
        assert len(text.content) < text.page_bytes
        assert text.content.startswith(f"{text.page}{text.page_bytes}".encode())
