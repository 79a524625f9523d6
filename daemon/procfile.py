"""Small files of /proc and of control groups, read whole. What is not there, or not ours to read, gives None.

Opened each time: that costs 5 µs more than a descriptor that is kept, and a run of hundreds of processes runs out of
none.
"""

from __future__ import annotations

import os
import re

_CHUNK_BYTES = 1 << 16
_PAIR = re.compile(rb"^(\w+):?[ \t]+(\d+)", re.MULTILINE)
_PRESSURE = re.compile(rb"^(some|full) .*total=(\d+)", re.MULTILINE)


def read(path: str) -> bytes | None:
    """Return what stands in a file; None where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.read(descriptor, _CHUNK_BYTES)
        # A read may give less than is left: of lists the kernel hands out a page at a time.
        while more := os.read(descriptor, _CHUNK_BYTES):
            found += more
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return found


def read_number(path: str) -> int | None:
    """Return the number that a file holds alone; None where it holds a word, as a limit does that is none."""
    text = (read(path) or b"").strip()
    return int(text) if text.isdigit() else None


def read_pairs(path: str) -> dict[bytes, int]:
    """Return the numbers of a file with a name and a number on each line; empty where it cannot be read."""
    return {name: int(number) for name, number in _PAIR.findall(read(path) or b"")}


def read_pressure_us(path: str) -> dict[bytes, int]:
    """Return for how long ``some`` and ``full`` tasks stood still, in microseconds, by pressure stall information."""
    return {name: int(total) for name, total in _PRESSURE.findall(read(path) or b"")}
