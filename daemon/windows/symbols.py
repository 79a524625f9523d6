"""Finds the addresses of functions in a running process, from its map and the mapped files (ELF of 64 bits).

Reads files only, and none of the process's memory, so that the process need not be stopped meanwhile.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from profd.daemon.processes import PROC
from profd.daemon.userfiles import files_of

_INTERPRETER = re.compile(r"(libpython\d|python(\d|$)|lib(c|pthread)[.-]|ld-musl)")
"""Names of files in which the functions of Python and of the C library are."""
_HEADER = struct.Struct("<16s2HI3QI6H")
_SEGMENT = struct.Struct("<2I6Q")
_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<I2BH2Q")
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_LOADED, _DYNAMIC_SYMBOLS = 1, 11
_PAGE_BYTES = 4096
_MOST_BYTES = 256 << 20


class Mapping(NamedTuple):
    """A line of ``/proc/PID/maps``; ``path`` is empty for memory of no file."""

    start: int
    end: int
    offset: int
    path: str


def mappings(pid: int) -> list[Mapping]:
    """Return the map of a process in order of addresses; raises OSError where it may not be read."""
    found = []
    for line in (PROC / str(pid) / "maps").read_text(errors="replace").splitlines():
        words = line.split(None, 5)
        start, _, end = words[0].partition("-")
        path = words[5] if len(words) > 5 else ""
        found.append(Mapping(int(start, 16), int(end, 16), int(words[2], 16), path))
    return found


def find(pid: int, names: Collection[str]) -> dict[str, int]:
    """Return the addresses of those of the functions that the process has; raises OSError."""
    found: dict[str, int] = {}
    files = files_of(pid)
    executable = str((PROC / str(pid) / "exe").readlink())
    for mapping in mappings(pid):
        if mapping.offset or not mapping.path.startswith("/"):
            continue
        image: int | None = None
        if mapping.path == executable:
            # The kernel's own link to the program: it follows no path, so none can mislead.
            image = os.open(PROC / str(pid) / "exe", os.O_RDONLY | os.O_CLOEXEC)
        elif _INTERPRETER.match(Path(mapping.path).name):
            image = files.open(mapping.path)
        if image is not None:  # else it was replaced since it was mapped, and another file may have the functions
            with os.fdopen(image, "rb") as file:
                offsets = exported(file.read(_MOST_BYTES), names)
            new = {name: mapping.start + offset for name, offset in offsets.items()}
            found = {**found, **new} if mapping.path == executable else {**new, **found}
    return found


def free_page(pid: int) -> int:
    """Return an address in the middle of the widest range where nothing is mapped; raises OSError."""
    taken = [mapping for mapping in mappings(pid) if mapping.path != "[vsyscall]"]
    gaps = [(after.start - before.end, before.end) for before, after in itertools.pairwise(taken)]
    width, start = max(gaps)
    return (start + width // 2) // _PAGE_BYTES * _PAGE_BYTES


def exported(image: bytes, names: Collection[str]) -> dict[str, int]:
    """Return the addresses of the functions that an ELF file exports, relative to its start in memory."""
    if not image.startswith(_ELF64_LITTLE):
        return {}
    try:
        header = _HEADER.unpack_from(image)
        segments_at, segment_bytes, count = header[5], header[9], header[10]
        segments = (_SEGMENT.unpack_from(image, segments_at + number * segment_bytes) for number in range(count))
        # The address that the file's first byte is linked to: 0 for what may lie anywhere.
        base = next((address - offset for kind, _, offset, address, *_ in segments if kind == _LOADED), None)
        return {} if base is None else {name: at - base for name, at in _symbols(image) if name in names}
    except (struct.error, ValueError, IndexError):  # cut off, or no ELF after all
        return {}


def _symbols(image: bytes) -> Iterator[tuple[str, int]]:
    header = _HEADER.unpack_from(image)
    sections_at, section_bytes, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(image, sections_at + number * section_bytes) for number in range(count)]
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != _DYNAMIC_SYMBOLS:
            continue
        names_at = sections[link][4]
        for name, _, _, section, address, _ in _SYMBOL.iter_unpack(image[offset : offset + length]):
            if section:
                start = names_at + name
                yield image[start : image.index(b"\0", start)].decode(errors="replace"), address
