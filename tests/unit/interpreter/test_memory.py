"""Memory and symbols of other processes, held against what their own loader says."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest
from support.interpreters import VERSIONS, python, standing

from profd.daemon import processes
from profd.daemon.interpreter.memory import (
    Memory,
    Unreadable,
    exported,
    mapped_files,
    variables_now,
)

ADDRESSES = """
import ctypes
text = ctypes.create_string_buffer(b"of the other one")
print(ctypes.addressof(text), flush=True)
input()
"""


@pytest.fixture
def own() -> Memory:
    return Memory(os.getpid())


def starts() -> dict[str, int]:
    """Return where the files that are mapped into this process begin."""
    return {path: start for start, path in reversed(mapped_files(processes.maps(os.getpid())))}


def test_no_name_in_a_map_makes_it_slow() -> None:
    """A search that begins anew at each character of this line would take hours."""
    long = "7f00-7f01 r--p 00000000 08:01 1 /tmp/" + "a" * 4_000_000
    assert mapped_files(f"{long}\n{long}\n") == [(0x7F00, long[long.index("/") :])] * 2


def test_bytes_of_another_process_are_read() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", ADDRESSES], stdin=pipe, stdout=pipe, text=True
    ) as other:
        assert other.stdout is not None
        address = int(other.stdout.readline())
        memory = Memory(other.pid)
        assert memory.read(address, 6) == b"of the"
        assert memory.word(address) == int.from_bytes(b"of the o", "little")
        assert memory.read_together((address + 7, 5), (address, 2)) == [b"other", b"of"]
        other.communicate("\n")
    with pytest.raises(Unreadable, match="has ended"):
        memory.read(address, 6)


@pytest.mark.parametrize("address", [0, 8, 1 << 47, (1 << 64) - 8, 1 << 70])
@pytest.mark.parametrize(
    "read", [Memory.word, lambda memory, at: memory.read_together((at % (1 << 64), 8))]
)
def test_what_is_no_memory_is_said_to_be_none(
    own: Memory, read: Callable[[Memory, int], object], address: int
) -> None:
    with pytest.raises(Unreadable, match="no memory"):
        read(own, address)


class LinkedToAnAddress(Memory):
    """Its own process, where the file at ``start`` says that it is linked to 0x400000."""

    start = 0

    def read(self, address: int, length: int) -> bytes:
        data = super().read(address, length)
        if address != self.start + int.from_bytes(super().read(self.start + 32, 8), "little"):
            return data
        segments = [list(segment) for segment in struct.iter_unpack("<2I6Q", data)]
        return b"".join(
            struct.pack("<2I6Q", *one[:3], one[3] + 0x400000, *one[4:]) for one in segments
        )


def test_functions_are_those_of_a_file_itself_from_its_start_and_of_an_elf_alone(
    own: Memory,
) -> None:
    linked = LinkedToAnAddress(os.getpid())
    linked.start = next(
        start for path, start in starts().items() if path.rpartition("/")[2].startswith("libc.")
    )
    assert (
        exported(linked, linked.start, ["mmap"])["mmap"]
        == exported(own, linked.start, ["mmap"])["mmap"] - 0x400000
    )
    start = starts()[os.path.realpath(msgspec._core.__file__)]
    assert exported(own, start, ("PyErr_SetString",)) == {}
    assert exported(own, start, ("PyInit__core",))["PyInit__core"] > start
    text = ctypes.create_string_buffer(b"#!/bin/sh" + bytes(100))
    with pytest.raises(Unreadable, match="no program"):
        exported(own, ctypes.addressof(text), ("Py_AddPendingCall",))


SETS_VARIABLES = """
import os
os.environ.pop("GIVEN", None)
os.environ["RANK"] = "3"
os.environ["LONG"] = "x" * 9000
print("ready", flush=True)
input()
"""
VARIABLES = frozenset({"RANK", "GIVEN", "LONG", "KEPT"})


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_program_has_set_and_unset_is_seen(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIVEN", "1")
    monkeypatch.setenv("KEPT", "2")
    with standing(SETS_VARIABLES, python(version)) as program:
        found = variables_now(program.pid, VARIABLES)
        assert {name: value for name, value in found.items() if name != "LONG"} == {
            "RANK": "3",
            "KEPT": "2",
        }
        assert set(found["LONG"]) == {"x"}
        assert processes.environment(program.pid, VARIABLES) == {"GIVEN": "1", "KEPT": "2"}


def test_a_process_that_is_gone_has_none() -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    assert variables_now(child, VARIABLES) == {}
