"""Where the functions of a running process lie: compared with what its own loader says."""

from __future__ import annotations

import ctypes
import os

import pytest

from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.windows import symbols
from profd.daemon.windows.symbols import Mapping

NAMES = ("mmap", "Py_AddPendingCall", "PyRun_SimpleString")


def address(function: object) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]


def test_functions_are_found_where_the_loader_has_put_them_or_left_out() -> None:
    found = symbols.find(os.getpid(), NAMES)
    assert found == {
        "mmap": address(ctypes.CDLL(None).mmap),
        "Py_AddPendingCall": address(ctypes.pythonapi.Py_AddPendingCall),
        "PyRun_SimpleString": address(ctypes.pythonapi.PyRun_SimpleString),
    }
    assert symbols.find(os.getpid(), ("Py_NoSuchFunction",)) == {}
    with pytest.raises(Unreadable):
        symbols.find(1 << 22, NAMES)


def test_free_page_lies_in_the_middle_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [
        Mapping(0x1000, 0x2000, 0, "/bin/python3"),
        Mapping(0x3000, 0x4000, 0, ""),
        Mapping(0x10000000, 0x10001000, 0, "[stack]"),
        Mapping(0xFFFFFFFFFF600000, 0xFFFFFFFFFF601000, 0, "[vsyscall]"),
    ]
    monkeypatch.setattr(symbols, "mappings", lambda _: known)
    assert symbols.free_page(1) == 0x8002000
    monkeypatch.setattr(symbols, "mappings", lambda _: [])  # as of a process that has just ended
    assert symbols.free_page(1) == 0
