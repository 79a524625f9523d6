"""Ends a process that reads a live run in one line if its index of the log is cut short meanwhile.

SQLite maps the index, ``-shm``, into each process that reads or writes the run. If somebody
truncates it, the kernel sends SIGBUS to the next that looks at it: Python can neither catch that
nor go on, and dies without a word. There is no other way to read a live run: without the index
(``nolock``, ``immutable``) the writer may fold the log into the file under the reader, and the
exclusive mode, which keeps the index in its own memory, lets nobody write.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from profd.daemon import processes
from profd.daemon.errors import ExitCode

_SIGBUS, _SA_SIGINFO, _DEFAULT = 7, 4, 0
_ADDRESS_AT = 16
"""Where the address that could not be read stands in a ``siginfo_t``, on machines of 64 bits."""
_HANDLERS: list[object] = []
"""The handler that is in force, which must not be freed."""
before_end: list[Callable[[], None]] = []
"""What a process does before it ends so: a dashboard leaves its terminal."""


def end_in_one_line() -> None:
    """Let this process say so if it is cut short.

    Where it has a handler of SIGBUS already, that stays.
    """
    if _HANDLERS:
        return
    import ctypes

    class Action(ctypes.Structure):
        _fields_ = (
            ("handler", ctypes.c_void_p),
            ("mask", ctypes.c_ulong * 16),
            ("flags", ctypes.c_int),
            ("restorer", ctypes.c_void_p),
        )

    sigaction = ctypes.CDLL(None).sigaction

    def end(_number: int, info: int, _context: int) -> None:
        address = ctypes.c_uint64.from_address(info + _ADDRESS_AT).value
        if (index := _index_at(address)) is not None:
            for act in before_end:
                act()
            what = f"cannot read on ({index} was cut short by another process): try again"
            os.write(2, f"profd: {what}\n".encode(errors="backslashreplace"))
            os._exit(ExitCode.UNREADABLE_RUN)
        sigaction(
            _SIGBUS, ctypes.byref(Action(_DEFAULT)), None
        )  # it is read again, and ends this process

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(end)
    before = Action()
    if sigaction(_SIGBUS, None, ctypes.byref(before)) == 0 and not before.handler:
        _HANDLERS.append(handler)
        address = ctypes.cast(handler, ctypes.c_void_p).value
        sigaction(_SIGBUS, ctypes.byref(Action(address, flags=_SA_SIGINFO)), None)


def _index_at(address: int) -> str | None:
    """Return the index of a log that is mapped at an address, None if it is anything else."""
    for line in processes.maps(os.getpid()).splitlines():
        bounds, *_, name = line.split(maxsplit=5)
        start, end = (int(one, 16) for one in bounds.split("-"))
        if start <= address < end:
            return name if name.endswith("-shm") else None
    return None
