"""The memory of another process, read through ``/proc/PID/mem``.

The process is neither stopped nor written to. The kernel asks for the right to trace it, as it does
of py-spy. Bytes of one reading may be of two moments: the process goes on meanwhile.

/proc/PID/environ has the variables that a process was started with. Ray Train and scripts that
spawn their ranks set RANK inside of the process; setenv(3) keeps the list at the C library's
``environ``, which ``variables_now`` reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
from collections.abc import Iterable
from itertools import accumulate, chain, pairwise

from profd.daemon import processes
from profd.daemon.elf import SEGMENT, SYMBOL, SegmentKind
from profd.daemon.processes import PAGE_BYTES

_DYNAMIC_ENTRY = struct.Struct("<2Q")
_NAMES, _SYMBOLS, _GNU_HASH = 5, 6, 0x6FFFFEF5
MOST_PROGRAMS = 16
"""How many files of a process are searched at most: each one it maps may have a library's name."""
_LIBRARY = re.compile(r"libc(-[\d.]+)?\.so|ld-musl")
_libc = ctypes.CDLL(None, use_errno=True)


class Unreadable(Exception):
    """The memory of a process is not as expected. The text says why."""


class FreeThreaded(Unreadable):
    """The process runs a free-threaded Python, whose structures are others."""


class Memory:
    """The memory of one process. It ends with the process, or when that becomes another program."""

    def __init__(self, pid: int) -> None:
        """Open it; raises Unreadable if the kernel forbids that."""
        try:
            self._fd = os.open(
                processes.PROC / str(processes.shown_as(pid)) / "mem", os.O_RDONLY | os.O_CLOEXEC
            )
        except OSError as error:
            raise Unreadable(f"its memory cannot be opened ({error.strerror})") from error
        self._pid = pid

    def close(self) -> None:
        os.close(self._fd)

    def read(self, address: int, length: int) -> bytes:
        """Return bytes; raises Unreadable if there is no such memory."""
        try:
            data = os.pread(self._fd, length, address)
        except (OSError, OverflowError, ValueError) as error:
            raise Unreadable(f"there is no memory at {address:#x}") from error
        if len(data) < length:
            raise Unreadable(
                "the process has ended" if not data else f"there is no memory at {address:#x}"
            )
        return data

    def read_together(self, *places: tuple[int, int]) -> list[bytes]:
        """Return the bytes at some places, all read within about a microsecond, in order.

        A place is an address and a length. Raises Unreadable if one of them is no memory. This goes
        by the number of the process, which may be another's by now: the bytes count only if
        ``read`` still works afterwards.
        """
        lengths = [length for _, length in places]
        into = ctypes.create_string_buffer(sum(lengths))
        here = struct.pack("<2Q", ctypes.addressof(into), len(into))
        there = struct.pack(f"<{2 * len(places)}Q", *chain.from_iterable(places))
        done = _libc.process_vm_readv(
            self._pid, here, ctypes.c_ulong(1), there, ctypes.c_ulong(len(places)), 0
        )
        if done != len(into):
            raise Unreadable("there is no memory at one of some places")
        data = into.raw
        return [data[at:end] for at, end in pairwise(accumulate(lengths, initial=0))]

    def word(self, address: int) -> int:
        """Return the 8 bytes at an address as a number; raises Unreadable."""
        return int.from_bytes(self.read(address, 8), "little")


def word_at(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def mapped_files(maps: str) -> list[tuple[int, str]]:
    """Return the address and path of each file that a memory map has from its start."""
    # Each line from its start: a name may be made so that a search within it takes hours.
    found = re.findall(r"(?m)^([0-9a-f]+)-[0-9a-f]+ \S+ 0+ \S+ \d+ +(/.*)", maps)
    return [(int(start, 16), path) for start, path in found]


def exported(memory: Memory, start: int, names: Iterable[str]) -> dict[str, int]:
    """Return the addresses of symbols that an ELF file mapped from ``start`` exports.

    It finds them as the loader does, in memory: the file may be another by now, and lie in another
    file system. Raises Unreadable.
    """
    header = memory.read(start, 64)
    if not header.startswith(b"\x7fELF\x02\x01"):  # of 64 bits, little-endian
        raise Unreadable("it is no program of 64 bits")
    count = int.from_bytes(header[56:58], "little")
    data = memory.read(start + word_at(header, 32), min(count, 64) * SEGMENT.size)
    segments = list(SEGMENT.iter_unpack(data))
    first = next(
        (
            address - offset
            for kind, _, offset, address, *_ in segments
            if kind == SegmentKind.LOADED
        ),
        0,
    )
    bias = start - first
    dynamic = next(
        (bias + address for kind, _, _, address, *_ in segments if kind == SegmentKind.DYNAMIC),
        None,
    )
    tables = {} if dynamic is None else _dynamic_table(memory, dynamic)
    if not tables.keys() >= {_NAMES, _SYMBOLS, _GNU_HASH}:
        return {}
    # The C library of GNU has these relocated in memory, and musl has not.
    names_at, symbols_at, hash_at = (
        tables[tag] if tables[tag] >= start else bias + tables[tag]
        for tag in (_NAMES, _SYMBOLS, _GNU_HASH)
    )
    found = {name: _look_up(memory, name.encode(), names_at, symbols_at, hash_at) for name in names}
    return {name: bias + value for name, value in found.items() if value}


def _dynamic_table(memory: Memory, start: int) -> dict[int, int]:
    """Return the values in a program's table for the loader, by their tags."""
    tables = {}
    for place in range(start, start + 256 * _DYNAMIC_ENTRY.size, _DYNAMIC_ENTRY.size):
        tag, value = _DYNAMIC_ENTRY.unpack(memory.read(place, _DYNAMIC_ENTRY.size))
        if not tag:
            break
        tables[tag] = value
    return tables


def _look_up(memory: Memory, name: bytes, names_at: int, symbols_at: int, hash_at: int) -> int:
    """Return the value of a symbol by the file's table of hashes; 0 if it is not there."""
    hashed = 5381
    for byte in name:
        hashed = (hashed * 33 + byte) & 0xFFFFFFFF
    buckets, first, blooms, _ = struct.unpack("<4I", memory.read(hash_at, 16))
    if not buckets:
        return 0
    buckets_at = hash_at + 16 + blooms * 8
    chains_at = buckets_at + buckets * 4
    symbol = int.from_bytes(memory.read(buckets_at + hashed % buckets * 4, 4), "little")
    for place in range(symbol, symbol + 10_000) if symbol >= first else ():
        in_chain = int.from_bytes(memory.read(chains_at + (place - first) * 4, 4), "little")
        if in_chain | 1 == hashed | 1:
            name_at, _, _, section, value, _ = SYMBOL.unpack(
                memory.read(symbols_at + place * SYMBOL.size, 24)
            )
            if section and memory.read(names_at + name_at, len(name) + 1) == name + b"\0":
                return int(value)
        if in_chain & 1:
            break
    return 0


def variables_now(pid: int, allowed: frozenset[str]) -> dict[str, str]:
    """Return the variables in ``allowed``, cut at 256 bytes; none if the memory is unreadable."""
    # It may move the list meanwhile, or end.
    with contextlib.suppress(Unreadable), contextlib.closing(Memory(pid)) as memory:
        return _variables(memory, pid, allowed)
    return {}


def _variables(memory: Memory, pid: int, allowed: frozenset[str]) -> dict[str, str]:
    executable = processes.link(pid, "exe")
    mapped = mapped_files(processes.maps(pid))
    # The executable's own copy first: if there is one, the library uses it too (R_X86_64_COPY).
    places = [start for start, path in mapped if path == executable]
    places += [start for start, path in mapped if _LIBRARY.match(path.rpartition("/")[2])]
    programs = places[:MOST_PROGRAMS]
    address = next(
        (
            found["environ"]
            for start in programs
            if (found := exported(memory, start, ("environ",)))
        ),
        None,
    )
    if address is None:
        return {}
    table, values = memory.word(address), dict[str, str]()
    for at in range(4096):
        pointer = memory.word(table + 8 * at)
        if not pointer:
            break
        data = memory.read(pointer, min(256, PAGE_BYTES - pointer % PAGE_BYTES))
        name, _, value = data.split(b"\0")[0].decode(errors="replace").partition("=")
        if name in allowed:
            values[name] = value
    return values
