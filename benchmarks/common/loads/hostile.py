"""A process that is dear to look at: ``hostile.py COMMAND_BYTES MAPS_BYTES THREADS``, each of which may be 0.

It takes little memory itself: its command line is memory that it never wrote to, and its maps are long because of the
name of the file in them. It ends with its parent.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

_PRIVATE, _ANONYMOUS, _NO_RESERVE, _READ, _PAGE_BYTES = 0x02, 0x20, 0x4000, 1, 4096
_SET_DEATH_SIGNAL, _SET_MM, _SET_MM_MAP = 1, 35, 14  # of prctl.h
_MOST_MAPS = 60_000  # the kernel allows 65,530
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = _libc.sbrk.restype = ctypes.c_void_p
_libc.mmap.argtypes = (*[ctypes.c_void_p] * 2, *[ctypes.c_int] * 3, ctypes.c_long)


def grow_command_line(size: int) -> None:
    """Have the kernel take ``size`` bytes of memory for the command line."""
    start = _libc.mmap(None, size, _READ, _PRIVATE | _ANONYMOUS | _NO_RESERVE, -1, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    code, data, (stack, heap) = fields[23:25], fields[42:44], (fields[25], fields[44])
    numbers = *code, *data, heap, _libc.sbrk(0), stack, start, start + size, *fields[47:49]
    words = struct.pack("<12QIi", *map(int, numbers), 0, 0, -1)
    if _libc.prctl(_SET_MM, ctypes.c_ulong(_SET_MM_MAP), words, ctypes.c_ulong(len(words)), ctypes.c_ulong(0)):
        raise OSError(ctypes.get_errno(), "the command line cannot be moved")


def grow_maps(size: int) -> None:
    """Map pages of a file with a long name, each with a line of its own in the maps."""
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    depth = min(size // _MOST_MAPS, 3_900) // 201
    for _ in range(depth):
        os.mkdir("x" * 200)  # noqa: PTH102  the path is longer than the kernel takes
        os.chdir("x" * 200)
    fd = os.open("libtorch.so", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, _PAGE_BYTES)
    for _ in range(min(size // (201 * depth + 100), _MOST_MAPS)):
        _libc.mmap(None, _PAGE_BYTES, _READ, _PRIVATE, fd, 0)
    os.chdir("/")
    import shutil

    shutil.rmtree(folder)


def main() -> None:
    """Grow, say so, and wait."""
    _libc.prctl(_SET_DEATH_SIGNAL, 9)
    command_bytes, maps_bytes, threads = map(int, sys.argv[1:])
    threading.stack_size(1 << 16)
    for _ in range(threads):
        threading.Thread(target=time.sleep, args=(3600.0,), daemon=True).start()
    if maps_bytes:
        grow_maps(maps_bytes)
    if command_bytes:
        grow_command_line(command_bytes)
    print("ready", flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    main()
