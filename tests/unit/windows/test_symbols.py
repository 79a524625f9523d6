"""Where the functions of a running process lie: held against what its own loader says."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

import pytest

from profd.daemon.windows import symbols
from profd.daemon.windows.symbols import Mapping

NAMES = ("mmap", "Py_AddPendingCall", "PyRun_SimpleString")


def address(function: object) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]


def test_functions_are_found_where_the_loader_has_put_them() -> None:
    found = symbols.find(os.getpid(), NAMES)
    assert found == {
        "mmap": address(ctypes.CDLL(None).mmap),
        "Py_AddPendingCall": address(ctypes.pythonapi.Py_AddPendingCall),
        "PyRun_SimpleString": address(ctypes.pythonapi.PyRun_SimpleString),
    }


def test_what_a_process_does_not_have_is_left_out() -> None:
    assert symbols.find(os.getpid(), ("Py_NoSuchFunction",)) == {}


def test_process_that_is_gone_is_an_error() -> None:
    with pytest.raises(OSError):
        symbols.find(1 << 22, NAMES)


def library() -> bytes:
    """Return a file that exports the functions of the C library."""
    known = symbols.mappings(os.getpid())
    path = next(mapping.path for mapping in known if Path(mapping.path).name.startswith(("libc.", "libc-")))
    return Path(path).read_bytes()


def test_file_that_is_no_elf_or_a_damaged_one_exports_nothing() -> None:
    image = library()
    assert "mmap" in symbols.exported(image, NAMES)
    assert symbols.exported(b"#!/bin/sh\n", NAMES) == {}
    assert symbols.exported(image[:64], NAMES) == {}
    assert symbols.exported(image[: len(image) // 2], NAMES) == {}


def test_program_that_is_linked_to_one_address_is_counted_from_its_start() -> None:
    image = bytearray(library())
    segments_at = int.from_bytes(image[32:40], "little")
    offset = symbols.exported(bytes(image), ("mmap",))["mmap"]
    for number in range(int.from_bytes(image[56:58], "little")):
        at = segments_at + number * 56
        if int.from_bytes(image[at : at + 4], "little") == 1:
            image[at + 16 : at + 24] = (0x400000).to_bytes(8, "little")
            break
    assert symbols.exported(bytes(image), ("mmap",))["mmap"] == offset - 0x400000


def test_free_page_lies_in_the_middle_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [
        Mapping(0x1000, 0x2000, 0, "/bin/python3"),
        Mapping(0x3000, 0x4000, 0, ""),
        Mapping(0x10000000, 0x10001000, 0, "[stack]"),
        Mapping(0xFFFFFFFFFF600000, 0xFFFFFFFFFF601000, 0, "[vsyscall]"),
    ]
    monkeypatch.setattr(symbols, "mappings", lambda _: known)
    assert symbols.free_page(1) == 0x8002000


def test_what_a_file_only_uses_is_none_of_its_functions() -> None:
    found = importlib.util.find_spec("msgspec._core")
    assert found is not None
    assert found.origin is not None
    image = Path(found.origin).read_bytes()
    assert symbols.exported(image, ("PyErr_SetString",)) == {}
    assert symbols.exported(image, ("PyInit__core",))["PyInit__core"] > 0
