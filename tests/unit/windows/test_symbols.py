"""Where the functions of a running process lie: compared with what its own loader says."""

from __future__ import annotations

import ctypes
import os

import pytest

from profd.daemon import processes
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.windows import symbols

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
    maps = (
        "1000-2000 r-xp 00000000 fe:00 1 /bin/python3\n"
        "3000-4000 rw-p 00000000 00:00 0 \n"
        "10000000-10001000 rw-p 00000000 00:00 0 [stack]\n"
        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n"
    )
    monkeypatch.setattr(processes, "maps", lambda _: maps)
    assert symbols.free_page(1) == 0x8002000
    monkeypatch.setattr(processes, "maps", lambda _: "")  # as of a process that has just ended
    assert symbols.free_page(1) == 0
