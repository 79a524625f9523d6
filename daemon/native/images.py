"""The files that are mapped in a process: their code, call frame information and names.

All is read from the files, by ``pread``: reading it from the memory of the process would make its
pages resident there, and mapping it would count as our own memory. What has to come from memory is
read only if its page is resident.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import NamedTuple

from profd.daemon import elf, processes
from profd.daemon.interpreter.memory import Memory, Unreadable
from profd.daemon.native.callframes import EndOfWalk, FrameTable
from profd.daemon.native.names import NamedFrame
from profd.daemon.processes import PAGE_BYTES

_LINE = re.compile(
    r"(?m)^([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)"
)


class Mapping(NamedTuple):
    """A part of a process's memory, and the file that is mapped there."""

    start: int
    end: int
    rights: str
    offset: int
    device: int
    inode: int
    path: str


def mappings_of(maps: str) -> Iterator[Mapping]:
    for start, end, rights, offset, major, minor, inode, path in _LINE.findall(maps):
        device = os.makedev(int(major, 16), int(minor, 16))
        place = int(start, 16), int(end, 16), rights, int(offset, 16)
        yield Mapping(*place, device, int(inode), path)


BestSymbols = dict[int, tuple[tuple[int, int, int], int]]
"""By address how good a symbol is, lower being better, and the place of its name."""


class Image:
    """A program file or library. Addresses are those that it is linked for."""

    def __init__(self, file: int) -> None:
        """Take a descriptor; raises EndOfWalk if it is no program for x86-64."""
        try:
            if elf.machine(file) != elf.X86_64:
                raise elf.NoProgram
            segments = elf.segments(file)
        except (OSError, OverflowError, elf.NoProgram) as error:
            raise EndOfWalk("its code is in no program file for x86-64") from error
        self._file = file
        self._loaded = [one for one in segments if one.kind == elf.SegmentKind.LOADED]
        self._index = next(
            (one.address for one in segments if one.kind == elf.SegmentKind.FRAME_INDEX), 0
        )
        self._names: dict[int, str] = {}

    def linked(self, offset: int) -> int:
        """Return the address of the code that begins in the page at an offset of the file."""
        for one in self._loaded:
            first = one.offset - one.offset % PAGE_BYTES
            if one.is_code and first <= offset < one.offset + one.size:
                return one.address - one.offset + offset
        raise EndOfWalk("a part of a file is mapped that has no code")

    def read(self, address: int, length: int) -> bytes:
        for one in self._loaded:
            if one.address <= address and address + length <= one.address + one.size:
                with contextlib.suppress(OSError, OverflowError):
                    found = os.pread(self._file, length, address - one.address + one.offset)
                    if len(found) == length:
                        return found
        raise EndOfWalk("a file ends where code or call frame information has to be")

    @cached_property
    def frames(self) -> FrameTable:
        if not self._index:
            raise EndOfWalk("a file has no call frame information")
        return FrameTable(self.read, self._index)

    def names(self, addresses: Sequence[int]) -> dict[int, str]:
        """Return the names of the functions that addresses lie in, as far as the file has them."""
        if new := sorted({one for one in addresses if one not in self._names}):
            self._names.update(dict.fromkeys(new, ""))
            with contextlib.suppress(OSError, OverflowError, elf.NoProgram):
                self._look_up(new)
        return {one: self._names[one] for one in addresses}

    def _look_up(self, wanted: Sequence[int]) -> None:
        """Fill in names, by one pass over the full table of symbols, else over the exported one."""
        sections = elf.sections(self._file)
        tables = [one for one in sections if one.kind in tuple(elf.SectionKind)]
        for table in sorted(tables, key=lambda one: one.kind):
            if table.link >= len(sections):
                continue
            best = self._best(table, wanted)
            for address, (_, name) in best.items():
                at = sections[table.link].offset + name
                found = os.pread(self._file, PAGE_BYTES, at).partition(b"\0")[0]
                self._names[address] = found.decode(errors="replace")
            wanted = [one for one in wanted if one not in best]

    def _best(self, table: elf.Section, wanted: Sequence[int]) -> BestSymbols:
        """Return the best symbol for each address, with the place of its name.

        Of several the last that begins, the shortest, and a global one are better.
        """
        best: BestSymbols = {}
        if not wanted:
            return best
        low, high = wanted[0], wanted[-1]
        for symbols in self._chunks(table):
            for name, info, _, section, value, size in symbols:
                if not (value <= high and low < value + size and section):
                    continue
                if info & 15 not in (2, 10):  # a function, or one that the loader chooses
                    continue
                rank = -value, size, not info >> 4
                for at in range(bisect_right(wanted, value - 1), len(wanted)):
                    if wanted[at] >= value + size:
                        break
                    if wanted[at] not in best or rank < best[wanted[at]][0]:
                        best[wanted[at]] = rank, name
        return best

    def _chunks(self, table: elf.Section) -> Iterator[Iterator[tuple[int, ...]]]:
        step = elf.SYMBOL.size << 11
        for at in range(0, table.size, step):
            data = os.pread(self._file, min(step, table.size - at), table.offset + at)
            yield elf.SYMBOL.iter_unpack(data[: len(data) // elf.SYMBOL.size * elf.SYMBOL.size])
            if len(data) < min(step, table.size - at):
                return


class CodePlace(NamedTuple):
    """A place in the code of a process: the image, and the address there."""

    image: Image
    address: int


class Images:
    """The images that processes have mapped, each opened once: ranks share their libraries."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], Image | None] = {}

    def open(self, pid: int, mapping: Mapping, head: bytes) -> Image | None:
        """Return the image of a mapping; None if its file cannot be found, or is another by now.

        ``head`` is the first page of the image as it is mapped; empty if that is unknown.
        """
        file = _open(pid, mapping, head)
        if file is None:
            return None
        about = os.fstat(file)
        key = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
        if key in self._known:
            os.close(file)
            return self._known[key]
        self._known[key] = None
        try:
            self._known[key] = Image(file)
        except EndOfWalk:
            os.close(file)
        return self._known[key]


def _open(pid: int, mapping: Mapping, head: bytes) -> int | None:
    """Return a descriptor of the very file that is mapped.

    The kernel gives it to root. Otherwise the path may lead to another one by now: then the first
    page tells, or if that is not resident the number of the file.
    """
    folder = f"{processes.PROC}/{processes.shown_as(pid)}"
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    for path in (f"map_files/{mapping.start:x}-{mapping.end:x}", f"root{mapping.path}"):
        with contextlib.suppress(OSError):
            file = os.open(f"{folder}/{path}", flags)
            about = os.fstat(file)
            is_same = path.startswith("map_files") or (
                head.startswith(os.pread(file, PAGE_BYTES, 0))
                if head
                else (about.st_dev, about.st_ino) == (mapping.device, mapping.inode)
            )
            if stat.S_ISREG(about.st_mode) and is_same:
                return file
            os.close(file)
    return None


class CodeOf:
    """The code of a process, by the addresses that it has there."""

    def __init__(self, pid: int, memory: Memory, images: Images) -> None:
        """Look at the memory map of a process; raises Unreadable."""
        self._pid, self._memory, self._images = pid, memory, images
        self._mappings = list(mappings_of(processes.maps(pid)))
        if not self._mappings:
            raise Unreadable("its memory map cannot be read")
        self._starts = [one.start for one in self._mappings]
        self._opened: dict[int, tuple[Image, int] | None] = {}
        self._pages = os.open(
            f"{processes.PROC}/{processes.shown_as(pid)}/pagemap", os.O_RDONLY | os.O_CLOEXEC
        )

    def close(self) -> None:
        os.close(self._pages)

    def mapping(self, address: int) -> Mapping | None:
        at = bisect_right(self._starts, address) - 1
        found = self._mappings[at] if at >= 0 else None
        return found if found is not None and address < found.end else None

    def is_code(self, address: int) -> bool:
        mapping = self.mapping(address)
        return mapping is not None and "x" in mapping.rights

    def place(self, address: int) -> CodePlace:
        """Return the image that an address lies in; raises EndOfWalk if there is none."""
        mapping = self.mapping(address)
        if mapping is None or "x" not in mapping.rights:
            raise EndOfWalk("an address is not that of code")
        if mapping.start not in self._opened:
            self._opened[mapping.start] = self._open(mapping)
        opened = self._opened[mapping.start]
        if opened is None:
            raise EndOfWalk(
                f"its code is in no file that can be read ({mapping.path or 'no name'})"
            )
        image, bias = opened
        return CodePlace(image, address - bias)

    def _open(self, mapping: Mapping) -> tuple[Image, int] | None:
        """Return the image of a mapping, and how far from its own addresses it is mapped."""
        if not mapping.path.startswith("/"):
            return None
        first = next((one for one in self._mappings if one.path == mapping.path), mapping)
        head = b""
        with contextlib.suppress(Unreadable):
            head = self.resident(first.start, PAGE_BYTES) if first.offset == 0 else b""
        image = self._images.open(self._pid, mapping, head)
        with contextlib.suppress(EndOfWalk):
            return None if image is None else (image, mapping.start - image.linked(mapping.offset))
        return None

    def read(self, address: int, length: int) -> bytes:
        """Return bytes of code; raises EndOfWalk."""
        image, at = self.place(address)
        return image.read(at, length)

    def resident(self, address: int, length: int) -> bytes:
        """Return bytes of a page of the process's memory; raises Unreadable if it is not there."""
        try:
            (flags,) = struct.unpack("<Q", os.pread(self._pages, 8, address // PAGE_BYTES * 8))
        except (OSError, OverflowError, struct.error):
            flags = 0
        if not flags >> 63:
            raise Unreadable(f"the memory at {address:#x} is not resident")
        return self._memory.read(address, length)

    def names(self, addresses: Iterable[int]) -> dict[int, NamedFrame]:
        """Return the functions at addresses of code, each file's by one pass over its symbols."""
        by_image: defaultdict[Image, dict[int, int]] = defaultdict(dict)
        found = {}
        for address in addresses:
            mapping = self.mapping(address)
            found[address] = NamedFrame("", PurePath(mapping.path).name if mapping else "")
            with contextlib.suppress(EndOfWalk):
                image, at = self.place(address)
                by_image[image][at] = address
        for image, wanted in by_image.items():
            for at, name in image.names(list(wanted)).items():
                found[wanted[at]] = found[wanted[at]]._replace(name=name)
        return found
