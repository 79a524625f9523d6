"""What is said where gdb does not do what it was asked for: it is a script here, and the process
only waits.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.interpreters import standing
from support.launches import state
from support.plainuser import NOBODY, process_of_plain_user
from support.present import there

from profd.daemon import processes
from profd.daemon.errors import MissingTool
from profd.daemon.interpreter.memory import Memory, Unreadable
from profd.daemon.windows import gdb
from profd.daemon.windows.gdb import CallAddresses, Text
from profd.daemon.windows.request import WindowFailed

CALLS = CallAddresses(0x1000, 0x2000, 0x3000)
TEXT = Text(b"pass\n", 0x7000, 4096)


@pytest.fixture
def pid() -> Iterator[int]:
    with standing() as program:
        yield program.pid


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def pretend(tools: Path, *lines: str, mode: int = 0o700) -> None:
    """Make a gdb of these lines of shell."""
    script = tools / "gdb"
    script.write_text("\n".join(("#!/bin/sh", *lines, "")))
    script.chmod(mode)


async def test_without_gdb_the_remedies_are_said(pid: int, tools: Path) -> None:
    with pytest.raises(
        MissingTool, match=r"install gdb, or restart the command with `profd run --torch-window"
    ):
        await gdb.execute(pid, TEXT, CALLS)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (["ptrace: Operation not permitted."], "does not let gdb attach .* --cap-add SYS_PTRACE"),
        (["profd page ffffffffffffffef"], "was given no memory at 0x7000"),
        (["profd page 7000", "profd queued -1"], "the queue of calls .* is full"),
        (
            ["warning: old", "[New LWP 7]", "Cannot access memory at address 0x7000"],
            "Cannot access memory",
        ),
        (["profd page 7000", "Restoring binary file"], "gdb could not do it .Restoring"),
        ([], "it said nothing"),
    ],
)
async def test_what_gdb_says_becomes_an_error_with_its_reason(
    pid: int, tools: Path, said: list[str], meant: str
) -> None:
    pretend(tools, *(f"echo {shlex.quote(line)}" for line in said))
    with pytest.raises(WindowFailed, match=meant):
        await gdb.execute(pid, TEXT, CALLS)


async def test_a_gdb_that_cannot_give_back_registers_is_kept_from_the_process(
    pid: int, tools: Path, tmp_path: Path
) -> None:
    """As gdb 13 on a CPU with AMX, in its own words: it shows it on a program of profd's own."""
    words = tmp_path / "words"
    pretend(
        tools, f'echo "$@" >> {words}', 'echo "Couldn\'t write extended state status: Bad address."'
    )
    with pytest.raises(WindowFailed, match="too old for this CPU"):
        await gdb.execute(pid, TEXT, CALLS)
    (asked,) = words.read_text().splitlines()
    assert "starti" in asked
    assert "attach" not in asked


async def test_gdb_reads_no_symbols_and_is_served_first_where_that_is_allowed(
    pid: int, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urged: list[int] = []
    monkeypatch.setattr("os.setpriority", lambda which, who, niceness: urged.append(niceness))
    words = tmp_path / "words"
    pretend(tools, f'echo "$@" > {words}', "echo profd page 7000", "echo profd queued 0")
    await gdb.execute(pid, TEXT, CALLS)
    assert urged == [-10]
    assert "-readnever" in words.read_text().split()

    def refuse(which: int, who: int, niceness: int) -> None:
        raise PermissionError

    monkeypatch.setattr("os.setpriority", refuse)  # it is done all the same
    await gdb.execute(pid, TEXT, CALLS)


async def test_gdb_is_killed_no_sooner_than_the_process_when_memory_ends(
    pid: int, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session offers itself to the kernel, and what it starts inherits that.

    Gdb holds the process.
    """
    holds = tmp_path / "holds"
    pretend(tools, 'case "$*" in *starti*) exit;; esac', f"echo $$ >{holds}", "echo profd queued 0")
    spared: list[tuple[int, int]] = []

    def spare(other: int, like: int) -> None:
        assert not holds.exists(), "it holds the process already"
        spared.append((other, like))

    monkeypatch.setattr(processes, "spare", spare)
    await gdb.execute(pid, TEXT, CALLS)
    assert spared == [(int(holds.read_text()), pid)]


async def ended(*words: str, pid: int) -> int:
    """Have a program in gdb's place that never ends by itself, once it is ready.

    Return how it ended.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    reading = asyncio.ensure_future(process.communicate())
    await gdb._end(process, reading, pid)
    await reading
    return there(process.returncode)


DEAF = ("sh", "-c", "trap '' INT TERM; echo ready; read x <&-; exec sleep 600")
GENTLE = (sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()")


async def test_gdb_is_asked_to_end_and_killed_only_if_it_does_not(
    pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of a call, it takes the process along."""
    assert await ended(*GENTLE, pid=pid) == -signal.SIGINT
    monkeypatch.setattr(gdb, "_GRACE_S", 0.01)
    assert await ended(*DEAF, pid=pid) == -signal.SIGKILL


async def test_a_process_that_gdb_leaves_stopped_goes_on(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    await ended(*GENTLE, pid=pid)
    assert state(pid) in "RS"


async def test_process_that_is_gone_is_said(tools: Path) -> None:
    pretend(tools)
    with pytest.raises(WindowFailed, match="cannot be looked at"):
        await gdb.execute(1 << 22, TEXT, CALLS)


def test_interpreter_without_the_functions_is_said(
    pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profd.daemon.windows.symbols.find", lambda pid, names: {"mmap": 1})
    with pytest.raises(WindowFailed, match="has no Py_AddPendingCall that can be found"):
        gdb.find_calls(pid)


def test_process_whose_memory_may_not_be_read_is_an_error(
    pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Memory:
        raise Unreadable("its memory cannot be opened (Permission denied)")

    monkeypatch.setattr("profd.daemon.windows.symbols.Memory", refuse)
    with pytest.raises(WindowFailed, match="looked up: its memory cannot be opened") as failure:
        gdb.find_calls(pid)
    assert "--cap-add SYS_PTRACE" in str(failure.value.remedy)


def test_text_has_room_for_itself_and_its_end(pid: int) -> None:
    for length in (10, 4095, 4096, 9000):
        text = gdb.lay_out(pid, lambda page, size, length=length: f"{page}{size}".ljust(length))  # type: ignore[misc]
        assert text.page_bytes % 4096 == text.page % 4096 == 0
        assert len(text.content) < text.page_bytes
        assert text.content.startswith(f"{text.page}{text.page_bytes}".encode())


async def test_process_that_is_stopped_is_left_alone(pid: int, tools: Path) -> None:
    pretend(tools, "echo profd queued 0")
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    with pytest.raises(WindowFailed, match="is stopped") as failure:
        await gdb.execute(pid, TEXT, CALLS)
    assert failure.value.remedy == f"let it run on: kill -CONT {pid}"


@pytest.fixture
def nobodys() -> Iterator[int]:
    with process_of_plain_user() as pid:
        yield pid


@pytest.mark.requires("root", "setpriv")
@pytest.mark.parametrize("may_attach", [True, False])
async def test_gdb_runs_as_the_user_of_the_process_where_that_may_attach(
    nobodys: int, may_attach: bool, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it has none of root's variables, in which a key may stand."""
    monkeypatch.setenv("SECRET", "hunter2")
    said = tmp_path / "said"
    said.touch()
    said.chmod(0o666)
    for folder in (tools, *(above for above in tools.parents if "pytest" in str(above))):
        folder.chmod(0o755)
    words = "profd queued 0" if may_attach else "ptrace: Operation not permitted."
    pretend(
        tools,
        'case "$*" in *starti*) exit;; esac\nme=$(/usr/bin/id -u)',
        f'echo "$me:$SECRET" >> {said}\n[ $me = 0 ] && echo profd queued 0 || echo "{words}"',
        mode=0o755,
    )
    await gdb.execute(nobodys, TEXT, CALLS)
    assert said.read_text().splitlines() == [f"{NOBODY}:", *["0:hunter2"] * (not may_attach)]
