"""Ends a process with a one-line message if the log index of the run it reads is cut short.

SQLite maps the index, ``-shm``, into each process that reads or writes the run. If somebody
truncates it, the kernel sends SIGBUS to the next process that accesses it. Python can neither catch
this nor continue, and dies without a message. A live run cannot be read in another way. Without the
index (``nolock``, ``immutable``) the writer may fold the log into the file while the reader uses
it. The exclusive mode, which keeps the index in its own memory, lets nobody write.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from profd.daemon import processes
from profd.daemon.errors import ExitCode

_SIGBUS, _SA_SIGINFO, _DEFAULT = 7, 4, 0
_ADDRESS_AT = 16
"""The offset in ``siginfo_t`` of the address that could not be read, on 64-bit machines."""
_HANDLERS: list[object] = []
"""The handler in force, kept here so that it is not freed."""
before_end: list[Callable[[], None]] = []
"""What a process does before it ends this way; a dashboard leaves its terminal."""


def end_in_one_line() -> None:
    """Let this process print a message if the index is cut short.

    A handler of SIGBUS that the process already has stays in place.
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
        )  # the access is repeated, and now ends this process

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(end)
    before = Action()
    if sigaction(_SIGBUS, None, ctypes.byref(before)) == 0 and not before.handler:
        _HANDLERS.append(handler)
        address = ctypes.cast(handler, ctypes.c_void_p).value
        sigaction(_SIGBUS, ctypes.byref(Action(address, flags=_SA_SIGINFO)), None)


def _index_at(address: int) -> str | None:
    """Return the log index that is mapped at an address, None if it is anything else."""
    for line in processes.maps(os.getpid()).splitlines():
        bounds, *_, name = line.split(maxsplit=5)
        start, end = (int(one, 16) for one in bounds.split("-"))
        if start <= address < end:
            return name if name.endswith("-shm") else None
    return None
