"""Files with call frame information, made by hand: the functions, and how each finds its caller."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from profd.daemon.native.callframes import EndOfWalk, FrameTable

INDEX = 0x9000
"""The address of .eh_frame_hdr."""
_FRAMES = 0x8000
AT_CALL = b"\x0c\x07\x08\x90\x01"
"""The CFA is rsp + 8, and the return address is below it: so each function begins."""
PUSHES_RBP = b"\x41\x0e\x10\x86\x02"
"""After one byte: rbp is pushed."""
SETS_RBP = PUSHES_RBP + b"\x43\x0d\x06"
"""After three more: the CFA goes by rbp."""


class Function(NamedTuple):
    """A function: where it lies, and the instructions for its frame."""

    start: int
    length: int
    instructions: bytes = b""


def record(identity: int, content: bytes) -> bytes:
    body = struct.pack("<I", identity) + content
    body += bytes(-len(body) % 4)
    return struct.pack("<I", len(body)) + body


class FrameData:
    """The bytes of .eh_frame and of its index, as a linker lays them out."""

    def __init__(
        self,
        functions: Sequence[Function],
        *,
        common: bytes = AT_CALL,
        letters: bytes = b"zR",
        augmentation: bytes = b"\x1b",
        return_register: int = 16,
    ) -> None:
        head = b"\x01" + letters + b"\0\x01\x78" + bytes([return_register])
        head += bytes([len(augmentation)]) + augmentation if letters else b""
        frames = record(0, head + common)
        entries = []
        for start, length, instructions in sorted(functions):
            at = _FRAMES + len(frames)
            place = struct.pack("<iI", start - (at + 8), length)
            content = place + (b"\0" if letters else b"") + instructions
            entries.append((start - INDEX, at - INDEX))
            frames += record(at + 4 - _FRAMES, content)
        index = b"\x01\x1b\x03\x3b" + struct.pack("<iI", _FRAMES - INDEX - 4, len(entries))
        index += b"".join(struct.pack("<2i", *entry) for entry in entries)
        self.parts = {_FRAMES: frames + bytes(4), INDEX: index}

    def read(self, address: int, length: int) -> bytes:
        for start, data in self.parts.items():
            if start <= address and address + length <= start + len(data):
                return data[address - start : address - start + length]
        raise EndOfWalk("there is nothing")

    def table(self) -> FrameTable:
        return FrameTable(self.read, INDEX)
