"""Native stacks of a live Python are those that gdb sees afterwards, and reading them leaves it as
it was.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess

import pytest
from support.commandline import CommandLine
from support.interpreters import READY, VERSIONS, python, standing
from support.waiting import until

from profd.daemon import processes
from profd.daemon.native.images import Images
from profd.daemon.native.reader import native_stacks
from profd.daemon.native.stacks import NativeStacks
from profd.daemon.systemcalls import system_call

WAITS = f"""
import queue, socket, threading
{READY}
def wait(call, *arguments):
    threading.Thread(target=call, args=arguments, daemon=True).start()
wait(queue.Queue().get)
wait(threading.Event().wait)
ours, theirs = socket.socketpair()
wait(ours.recv, 1)
def inner():
    held.acquire()
held = threading.Lock()
held.acquire()
wait(lambda: sorted([2, 1], key=lambda _: inner()))
ready()
"""
WAITING = 5
"""Threads of it that wait: four, and the main one."""


def waits(pid: int) -> bool:
    calls = [system_call(pid, os_tid) for os_tid in processes.thread_ids(pid).values()]
    return len(calls) == WAITING and all(calls)


@pytest.mark.requires("gdb")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_frames_are_those_of_gdb(version: str) -> None:
    with standing(WAITS, python(version)) as program:
        until(lambda: waits(program.pid), "all threads to wait")
        with contextlib.closing(NativeStacks(program.pid, Images())) as stacks:
            found = {
                os_tid: stacks.walk(os_tid) for os_tid in processes.thread_ids(program.pid).values()
            }
        of_gdb = backtraces(program.pid)
        assert found.keys() == of_gdb.keys()
        for os_tid, walk in found.items():
            assert walk is not None
            counters = [frame.counter for frame in walk.frames]
            assert counters == of_gdb[os_tid][: len(counters)]
            assert walk.end or len(counters) == len(of_gdb[os_tid])


def backtraces(pid: int) -> dict[int, list[int]]:
    """Return the program counters of all threads, as gdb sees them."""
    script = (
        "import gdb\n"
        "for thread in gdb.selected_inferior().threads():\n"
        "    thread.switch()\n"
        "    frame, counters = gdb.newest_frame(), []\n"
        "    while frame is not None:\n"
        "        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME): counters.append(frame.pc())\n"
        "        frame = frame.older()\n"
        "    print('THREAD', thread.ptid[1], *counters)\n"
    )
    words = ["gdb", "-q", "-batch", "-p", str(pid), "-ex", f"python exec({script!r})"]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    rows = (line.split()[1:] for line in said.splitlines() if line.startswith("THREAD"))
    return {int(os_tid): list(map(int, counters)) for os_tid, *counters in rows}


def test_a_read_leaves_a_process_as_it_was() -> None:
    with standing(WAITS) as program:
        until(lambda: waits(program.pid), "all threads to wait")
        switches = {
            os_tid: processes.status(program.pid, os_tid)["voluntary_ctxt_switches"]
            for os_tid in processes.thread_ids(program.pid).values()
        }
        resident = processes.status(program.pid)["RssFile"]
        found = native_stacks([program.pid])[program.pid]
        assert [thread.end for thread in found.threads] == [""] * WAITING
        after = processes.status(program.pid)
        assert (after["RssFile"], after["TracerPid"]) == (resident, "0")
        assert switches == {
            os_tid: processes.status(program.pid, os_tid)["voluntary_ctxt_switches"]
            for os_tid in switches
        }


def test_dump_has_the_function_in_which_each_thread_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    profd = CommandLine(capsys)
    with standing(WAITS) as program:
        until(lambda: waits(program.pid), "all threads to wait")
        (dumped,) = json.loads(profd("dump", program.pid, "--native", "--json"))
        text = profd("dump", program.pid, "--native")
    native = [thread["native"] for thread in dumped["threads"]]
    assert len(native) == WAITING
    assert all(
        frames and re.search(r"\(.*(libc|libpthread|python)", frames[0]) for frames in native
    )
    recv = next(lines for lines in text.split("\n\n") if "sock_recv" in lines or "recv (" in lines)
    assert recv.splitlines()[-1].startswith("    ")
