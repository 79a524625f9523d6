"""Says whether a program file contains a CPython, by what its linker wrote into it.

The name of a file proves nothing. A linker keeps the name of the interpreter's state,
``_PyRuntime``, with the symbols that a file exports, and with all others until it is stripped.
Since 3.10 that state has its own section, which stripping keeps.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct("<16s2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<I2BH2Q")
_OF_64_BITS = b"\x7fELF\x02\x01"
_ALL_SYMBOLS, _EXPORTED = 2, 11
_MOST_SECTIONS, _MOST_BYTES, _MOST_FILES = 4_096, 1 << 22, 4_096
"""Another user may have written the file: its own claims are no reason to read gigabytes."""
_known: dict[tuple[int, int, int, int], str | None] = {}
"""By device, inode, size and time of change: a hundred processes share most of their files."""


class _Section(NamedTuple):
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
    except (OSError, OverflowError, struct.error):  # cut off, or no program
        return None
    finally:
        os.close(descriptor)


def _look(file: int) -> str | None:
    header = _HEADER.unpack(os.pread(file, _HEADER.size, 0))
    if not header[0].startswith(_OF_64_BITS):
        return None
    offset, count, names_at = header[6], min(header[12], _MOST_SECTIONS), header[13]
    table = os.pread(file, count * _SECTION.size, offset)
    sections = [_Section(*fields) for fields in _SECTION.iter_unpack(table)]
    found = None
    if names_at < len(sections):
        names = _content(file, sections[names_at])
        at = names.find(b".PyRuntime\0")
        found = "" if at >= 0 and any(section.name == at for section in sections) else None
    for table_of in sections:
        if table_of.kind in (_ALL_SYMBOLS, _EXPORTED) and table_of.link < len(sections):
            names = _content(file, sections[table_of.link])
            if b"\0_PyRuntime\0" in names:
                symbols = _content(file, table_of)
                if any(
                    place for _, place in _values(symbols, names, b"_PyRuntime")
                ):  # defined here, and not in another file
                    return _version(file, sections, _values(symbols, names, b"Py_Version"))
    return found


def _content(file: int, section: _Section) -> bytes:
    return os.pread(file, min(section.size, _MOST_BYTES), section.offset)


def _values(symbols: bytes, names: bytes, name: bytes) -> Iterator[tuple[int, int]]:
    """Yield the addresses of the symbols of a name, and the numbers of their sections.

    The number is 0 if a symbol has no section.
    """
    name_at = names.find(b"\0%b\0" % name) + 1
    whole = len(symbols) // _SYMBOL.size * _SYMBOL.size if name_at else 0
    for at, _, _, place, value, _ in _SYMBOL.iter_unpack(symbols[:whole]):
        if at == name_at:
            yield value, place


def _version(file: int, sections: list[_Section], version_at: Iterator[tuple[int, int]]) -> str:
    """Return the version in ``Py_Version``, at the first address that lies in a section.

    The symbol exists since Python 3.11.
    """
    for address, place in version_at:
        if 0 < place < len(sections):
            data = os.pread(file, 8, address - sections[place].address + sections[place].offset)
            number = int.from_bytes(data, "little")
            return f"{number >> 24}.{number >> 16 & 0xFF}" if number >> 24 == 3 else ""
    return ""
