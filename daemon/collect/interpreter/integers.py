"""Reads one integer variable of a running Python: a local variable of a function, or a global one of a module.

The process goes on while it is read. A look takes the reference, the object and the reference again at nearly one
moment. Still the object may be another one: freed, made anew at the same address for another number, and freed again,
all between the two references; in a loop of 3 microseconds that is so in 1 of 600 looks. So a value counts only where
it held still: the same in some looks, between two of which the variable's frame was seen on the stack, or its entry in
the dictionary. What changes every few microseconds is mostly not read.
"""

from __future__ import annotations

import struct

import msgspec

from profd.daemon.collect.interpreter.frames import Frame, Interpreter
from profd.daemon.collect.interpreter.memory import Unreadable
from profd.daemon.collect.interpreter.offsets import CELL_VALUE, DICT_KEYS, DICT_VALUES, DIGITS, SIZE, TYPE

LOOKS = 3
TRIES = 10
_MOST_DIGITS = 3
"""More than 2 to the power of 90 is no count of anything."""
_MOST_KEYS = 100_000


class NoInteger(Exception):
    """There is no value to be read now. The text says why."""


class Moved(NoInteger):
    """The variable changed at each try."""


class Local(msgspec.Struct, frozen=True):
    """A local variable: of the innermost frame with this code, at this place among the code's variables."""

    code: int
    place: int


class Global(msgspec.Struct, frozen=True):
    """A global variable: the dictionary of its module, and its name."""

    dictionary: int
    name: str


def local_of(frame: Frame, name: str) -> Local | None:
    """Return a local variable of a function; None where it has none of this name."""
    # Up to 3.10 an argument that an inner function uses is there twice, and has its value in the second place.
    places = [place for place, variable in enumerate(frame.code.variables) if variable == name]
    return Local(frame.code.address, places[-1]) if places else None


class IntegerReader:
    """Reads variables of one thread of an interpreter. Remembers where they were found."""

    def __init__(self, interpreter: Interpreter, thread: int) -> None:
        self._python = interpreter
        self._thread = thread
        self._entries: dict[Global, tuple[int, int]] = {}

    def read(self, variable: Local | Global) -> int:
        """Return the value of a variable.

        Raises NoInteger where it has none now that is an ``int``, Moved where it changed at each of some tries, and
        Unreadable where the memory is not as expected, or the process has ended.
        """
        for _ in range(TRIES):
            value = self._try(variable)
            if value is not None:
                return value
        self._python.main_thread()  # raises where the memory cannot be read at all
        raise Moved("it changes faster than it can be read")

    def _try(self, variable: Local | Global) -> int | None:
        """Return the value; None where it moved meanwhile, and what was followed led elsewhere."""
        try:
            return self._read_local(variable) if isinstance(variable, Local) else self._read_global(variable)
        except Unreadable:
            return None

    def _read_local(self, variable: Local) -> int | None:
        """Return the value where it held still; None where it did not."""
        python = self._python
        frame = self._frame_of(variable.code)
        if frame is None:
            raise NoInteger("its function is not on the stack")
        slot = frame + python.offsets.values + 8 * variable.place
        before = self._look(slot, (frame + python.offsets.code, 8))
        if before is None or self._frame_of(variable.code) != frame:
            return None
        data, code = before
        if python.untagged(int.from_bytes(code, "little")) != variable.code:
            return None
        return self._value(data) if self._holds(before, slot, (frame + python.offsets.code, 8)) else None

    def _frame_of(self, code: int) -> int | None:
        """Return the innermost frame of the thread with this code."""
        return next((frame for frame, of_code in self._python.frames(self._thread) if of_code == code), None)

    def _read_global(self, variable: Global) -> int | None:
        """Return the value where it held still; None where it did not."""
        python = self._python
        if not python.is_of_type(variable.dictionary, "PyDict_Type"):
            raise Unreadable("its module has no dictionary any more")
        keys = python.memory.word(variable.dictionary + DICT_KEYS)
        entry = self._entry(variable, keys)
        beside = (variable.dictionary + DICT_KEYS, 8), (entry, 8)
        before = self._look(entry + 8, *beside)
        if before is None:
            return None
        data, keys_then, key = before
        if int.from_bytes(keys_then, "little") != keys or key != python.memory.read(entry, 8):
            return None
        return self._value(data) if self._holds(before, entry + 8, *beside) else None

    def _holds(self, before: tuple[bytes, ...], slot: int, *beside: tuple[int, int]) -> bool:
        """Say whether further looks find what one found."""
        return all(self._look(slot, *beside) == before for _ in range(LOOKS - 1))

    def _look(self, slot: int, *beside: tuple[int, int]) -> tuple[bytes, ...] | None:
        """Return the object that a reference leads to, from its type on, and bytes beside it; None where it moved."""
        python, memory = self._python, self._python.memory
        reference = memory.read(slot, 8)
        path = [slot]
        for _ in range(2):
            address = python.untagged(int.from_bytes(reference, "little"))
            if not address:
                raise NoInteger("it has no value")
            links = [(place, 8) for place in path]
            # Without the count of references, which changes all the time.
            target = (address + TYPE, DIGITS + 4 * _MOST_DIGITS - TYPE)
            once = [*links, target]
            found = memory.read_together(*beside, *once, *once, *once)
            first, second, third = (found[len(beside) + turn * len(once) :][: len(once)] for turn in range(3))
            if not first == second == third or first[-2] != reference:
                return None
            data = first[-1]
            if int.from_bytes(data[:8], "little") != python.types["PyCell_Type"]:
                return data, *found[: len(beside)]
            path.append(address + CELL_VALUE)
            reference = data[CELL_VALUE - TYPE :][:8]
        raise NoInteger("it is no int")

    def _entry(self, variable: Global, keys: int) -> int:
        """Return the address of a variable's key in the table of its dictionary; its value follows."""
        known = self._entries.get(variable)
        if known is not None and known[0] == keys:
            return known[1]
        python = self._python
        if python.memory.word(variable.dictionary + DICT_VALUES):
            raise Unreadable("its module's dictionary shares its keys")
        start, width, count = self._table(keys)
        table = python.memory.read(start, count * width)
        for number in range(count):
            (key,) = struct.unpack_from("<Q", table, (number + 1) * width - 16)
            if key and python.is_of_type(key, "PyUnicode_Type") and python.text(key) == variable.name:
                found = start + (number + 1) * width - 16
                self._entries[variable] = (keys, found)
                return found
        raise NoInteger("its module has no variable of this name")

    def _table(self, keys: int) -> tuple[int, int, int]:
        """Return where a dictionary's entries begin, the bytes of each, and how many there are: key and value last."""
        offsets, memory = self._python.offsets, self._python.memory
        head = memory.read(keys, offsets.indices)
        count = int.from_bytes(head[offsets.entries : offsets.entries + 8], "little")
        if self._python.version >= (3, 11):
            index_bytes, is_general = 1 << head[9], head[10] == 0
        else:
            size = int.from_bytes(head[8:16], "little")
            index_bytes, is_general = size * (1 if size <= 0xFF else 2 if size <= 0xFFFF else 4), True
        if count > _MOST_KEYS or index_bytes > 16 * _MOST_KEYS:
            raise Unreadable("its module's dictionary is no dictionary")
        return keys + offsets.indices + index_bytes, 24 if is_general else 16, count

    def _value(self, data: bytes) -> int:
        """Return the number in an object's bytes from its type on."""
        python = self._python
        if int.from_bytes(data[:8], "little") != python.types["PyLong_Type"]:
            raise NoInteger("it is no int")
        size = int.from_bytes(data[SIZE - TYPE :][:8], "little", signed=True)
        if python.offsets.has_tag:
            length, is_negative = size >> 3, size & 3 == 2
        else:
            length, is_negative = abs(size), size < 0
        if not 0 <= length <= _MOST_DIGITS:
            raise NoInteger("it is larger than a count")
        digits = struct.unpack_from(f"<{length}I", data, DIGITS - TYPE)
        value: int = sum(digit << 30 * place for place, digit in enumerate(digits))
        return -value if is_negative else value
