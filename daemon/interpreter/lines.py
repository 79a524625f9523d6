"""The line of a frame of a running Python: by its instruction, and the table of its code.

    frame -> its instruction, as a number of bytes from the beginning of its code
    code  -> its first line, and a table of how lines follow each other along the instructions:
             co_lnotab up to 3.9, co_linetable in 3.10, and another format of that from 3.11 on

The formats are those of CPython's ``Objects/lnotab_notes.txt`` in 3.8 and 3.10, and
``Objects/locations.md`` (3.11) or ``InternalDocs/code_objects.md`` (3.14). The line is that of the
frame's ``f_lineno``.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache, partial

from profd.daemon.interpreter.frames import Interpreter, PythonFrame
from profd.daemon.interpreter.memory import Unreadable, word_at
from profd.daemon.interpreter.objects import Missing, alive
from profd.daemon.interpreter.offsets import BYTES, SIZE, TYPE

_MOST_BYTES = 1 << 20
_NO_LINE = -128
NONE = -1
_SHORT, _LONG, _WITHOUT_LINE = {10: 0, 11: 1, 12: 2}, (13, 14), 15
"""Kinds of entries of 3.11: how much further on are lines of short ones; others have the same line.
"""
_Entries = Iterator[tuple[int, int, bool]]
"""Of each range of instructions: its bytes, how many lines it is further on, and if it has one."""


class Lines:
    """Finds lines in an interpreter; keeps the tables that were used last."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._python = interpreter
        places = interpreter.offsets.code, interpreter.offsets.instruction
        self._first, self._length = min(places), max(places) - min(places) + 8
        # By what a table has, not by its address: that may be another's by the next time.
        self._table = lru_cache(128)(partial(decoded, interpreter.version))

    def line_of(self, frame: PythonFrame) -> int | None:
        """Return the line of a frame, counted from 1; that of a caller is the line of its call.

        It is None if the frame's instruction has no line, or if the frame has ended or has another
        code than it had. Up to 3.10 each frame shows that; from 3.11 on one that has ended may
        still look as it did, until its place is used again. Raises Unreadable if the memory is not
        as expected.
        """
        python, offsets = self._python, self._python.offsets
        if python.version < (3, 11):
            # Up to 3.10 a frame is an object, which its code keeps for the next call.
            try:
                alive(python, frame.address)
            except Missing:
                return None
        place = frame.address + self._first, self._length
        data = python.memory.read(*place)
        code = word_at(data, offsets.code - self._first)
        if python.untagged(code) != frame.code.address:
            return None
        # As long as the frame has this code, that stays, and so does its table. A new frame gets
        # its instruction later.
        try:
            line = self._line(frame, data[offsets.instruction - self._first :][:8])
        except Unreadable:
            if python.memory.read(*place) == data:
                raise
            return None
        return line if python.memory.word(frame.address + offsets.code) == code else None

    def _line(self, frame: PythonFrame, instruction: bytes) -> int | None:
        offsets = self._python.offsets
        first, last = offsets.first_line, offsets.line_table
        code = self._python.memory.read(frame.code.address + first, last + 8 - first)
        first_line = int.from_bytes(code[:4], "little")
        if first_line != frame.code.first_line:
            return None  # by now another code lies at its address
        if offsets.first_instruction is not None:
            at = word_at(instruction, 0) - frame.code.address - offsets.first_instruction
        else:
            at = int.from_bytes(instruction[:4], "little", signed=True) * (
                2 if self._python.version >= (3, 10) else 1
            )
        if at in (-2, -1):
            return first_line  # it has not begun
        address = word_at(code, last - first)
        head = self._python.memory.read(address, SIZE + 8)
        if word_at(head, TYPE) != self._python.type("PyBytes_Type"):
            raise Unreadable("the table of lines of a code is none")
        if (length := word_at(head, SIZE)) > _MOST_BYTES:
            raise Unreadable("the table of lines of a code is too long")
        starts, lines = self._table(first_line, self._python.memory.read(address + BYTES, length))
        if not 0 <= at < starts[-1]:
            raise Unreadable("the instruction of a frame is not in its code")
        line = lines[bisect_right(starts, at) - 1]
        return None if line == NONE else line


def decoded(
    version: tuple[int, int], first_line: int, data: bytes
) -> tuple[array[int], array[int]]:
    """Return the first bytes of ranges of instructions and of the end, ascending, and their lines.

    No range is empty. A line is NONE if there is none, as at the end. Lists would take ten times as
    much, some 20 kB a function. Raises Unreadable if a number is no line's.
    """
    entries = _of_3_11 if version >= (3, 11) else _of_3_10 if version >= (3, 10) else _of_3_8
    starts, lines, line = array("i", [0]), array("i", [NONE]), first_line
    try:
        for length, delta, has_line in entries(data):
            line += delta
            lines[-1] = line if has_line else NONE
            if length:
                starts.append(starts[-1] + length)
                lines.append(NONE)
    except OverflowError as error:
        raise Unreadable("a line in the table of a code is no line") from error
    return starts, lines


def _of_3_8(data: bytes) -> _Entries:
    """Yield the entries of pairs: the bytes until the next line, and by how much it is further on.

    The last range is open.
    """
    delta = 0
    for length, following in struct.iter_unpack("Bb", data[: len(data) & ~1]):
        yield length, delta, True
        delta = following
    yield 1 << 30, delta, True


def _of_3_10(data: bytes) -> _Entries:
    for length, delta in struct.iter_unpack("Bb", data[: len(data) & ~1]):
        yield length, 0 if delta == _NO_LINE else delta, delta != _NO_LINE


def _of_3_11(data: bytes) -> _Entries:
    """Yield the entries: only the first byte of each has the highest bit."""
    for start, head in enumerate(data):
        if head & 128:
            kind = head >> 3 & 15
            delta = _variable(data, start + 1) if kind in _LONG else _SHORT.get(kind, 0)
            yield 2 * ((head & 7) + 1), delta, kind != _WITHOUT_LINE


def _variable(data: bytes, at: int) -> int:
    """Return a number of 6 bits in each byte, the lowest first; its lowest bit is the sign."""
    number = 0
    for place, byte in enumerate(data[at : at + 8]):
        number |= (byte & 63) << 6 * place
        if not byte & 64:
            break
    return -(number >> 1) if number & 1 else number >> 1
