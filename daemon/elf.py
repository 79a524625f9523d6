"""Reads program files: their parts, and whether one contains a CPython.

The name of a file proves nothing. A linker keeps the name of the interpreter's state,
``_PyRuntime``, with the symbols that a file exports, and with all others until it is stripped.
Since 3.10 that state has its own section, which stripping keeps.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

_HEADER = struct.Struct("<16s2HI3QI6H")
SEGMENT = struct.Struct("<2I6Q")
_SECTION = struct.Struct("<2I4Q2I2Q")
SYMBOL = struct.Struct("<I2BH2Q")
_OF_64_BITS = b"\x7fELF\x02\x01"
X86_64 = 62
_MOST_SECTIONS, _MOST_BYTES, _MOST_FILES = 4_096, 1 << 22, 4_096
"""Another user may have written the file: its own claims are no reason to read gigabytes."""
_known: dict[tuple[int, int, int, int], str | None] = {}
"""By device, inode, size and time of change: a hundred processes share most of their files."""


class NoProgram(ValueError):
    """A file is no program of 64 bits for this kind of processor, or is cut off."""


class SegmentKind(IntEnum):
    """Kinds of segments: what is mapped, the table for the loader, the call frame information."""

    LOADED, DYNAMIC, FRAME_INDEX = 1, 2, 0x6474E550


class SectionKind(IntEnum):
    """Kinds of sections with symbols."""

    ALL, EXPORTED = 2, 11


class Segment(NamedTuple):
    """A part of a file that is mapped, or that tells where something is."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    size: int
    memory_size: int
    alignment: int

    @property
    def is_code(self) -> bool:
        return bool(self.flags & 1)


class Section(NamedTuple):
    """A part of a file by its use."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


def python_in(path: str) -> str | None:
    """Return the version of the CPython in a file, ``""`` if it does not say.

    None if there is no CPython.
    """
    try:
        # Another user's path may lead to a pipe by now.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        file = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
        if file not in _known:
            if len(_known) >= _MOST_FILES:
                _known.clear()
            _known[file] = _look(descriptor) if stat.S_ISREG(about.st_mode) else None
        return _known[file]
    except (OSError, OverflowError, NoProgram):
        return None
    finally:
        os.close(descriptor)


def machine(file: int) -> int:
    """Return the number of the kind of processor that a program is for; raises NoProgram."""
    return int(_header(file)[2])


def segments(file: int) -> list[Segment]:
    """Return the segments of a program; raises NoProgram."""
    header = _header(file)
    table = os.pread(file, min(header[10], _MOST_SECTIONS) * SEGMENT.size, header[5])
    return [Segment(*fields) for fields in _whole(SEGMENT, table)]


def sections(file: int) -> list[Section]:
    """Return the sections of a program; raises NoProgram."""
    header = _header(file)
    table = os.pread(file, min(header[12], _MOST_SECTIONS) * _SECTION.size, header[6])
    return [Section(*fields) for fields in _whole(_SECTION, table)]


def _header(file: int) -> tuple[Any, ...]:
    data = os.pread(file, _HEADER.size, 0)
    if len(data) < _HEADER.size or not data.startswith(_OF_64_BITS):
        raise NoProgram
    return _HEADER.unpack(data)


def _whole(form: struct.Struct, table: bytes) -> Iterator[tuple[int, ...]]:
    return form.iter_unpack(table[: len(table) // form.size * form.size])


def _look(file: int) -> str | None:
    found, names_at, every = None, _header(file)[13], sections(file)
    if names_at < len(every):
        names = _content(file, every[names_at])
        at = names.find(b".PyRuntime\0")
        found = "" if at >= 0 and any(section.name == at for section in every) else None
    for table_of in every:
        if table_of.kind in tuple(SectionKind) and table_of.link < len(every):
            names = _content(file, every[table_of.link])
            if b"\0_PyRuntime\0" in names:
                symbols = _content(file, table_of)
                if any(
                    place for _, place in _values(symbols, names, b"_PyRuntime")
                ):  # defined here, and not in another file
                    return _version(file, every, _values(symbols, names, b"Py_Version"))
    return found


def _content(file: int, section: Section) -> bytes:
    return os.pread(file, min(section.size, _MOST_BYTES), section.offset)


def _values(symbols: bytes, names: bytes, name: bytes) -> Iterator[tuple[int, int]]:
    """Yield the addresses of the symbols of a name, and the numbers of their sections.

    The number is 0 if a symbol has no section.
    """
    name_at = names.find(b"\0%b\0" % name) + 1
    for at, _, _, place, value, _ in _whole(SYMBOL, symbols) if name_at else ():
        if at == name_at:
            yield value, place


def _version(file: int, sections: list[Section], version_at: Iterator[tuple[int, int]]) -> str:
    """Return the version in ``Py_Version``, at the first address that lies in a section.

    The symbol exists since Python 3.11.
    """
    for address, place in version_at:
        if 0 < place < len(sections):
            data = os.pread(file, 8, address - sections[place].address + sections[place].offset)
            number = int.from_bytes(data, "little")
            return f"{number >> 24}.{number >> 16 & 0xFF}" if number >> 24 == 3 else ""
    return ""
