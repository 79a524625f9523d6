"""Reads one integer of a running Python: a variable of a function or of a module.

The process goes on while it is read. A look takes the reference, the object and the reference again
at nearly one moment. Still the object may be another one: freed, made anew at the same address for
another number, and freed again, all between the two references; in a loop of 3 microseconds that is
so in 1 of 600 looks. So a value counts only if it held still: several looks agree, and between two
of them all that led to it was seen again: the frame on the stack, the entry in the dictionary, the
object alive and of its type. A value that changes every few microseconds is mostly not read.

An object that was freed, and replaced by another one of the same type at the same address, looks
like the first.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec

from profd.daemon.interpreter.frames import Code, Interpreter, PythonFrame, open_interpreter
from profd.daemon.interpreter.looks import TRIES
from profd.daemon.interpreter.memory import Unreadable, word_at
from profd.daemon.interpreter.objects import Missing
from profd.daemon.interpreter.offsets import CELL_VALUE, DIGITS, SIZE, TYPE
from profd.daemon.interpreter.slots import Link, Slot, Slots
from profd.daemon.interpreter.tensors import TensorVersion, version_of

LOOKS = 3
WALKS = 4
_MOST_THREADS = 64
_MOST_DIGITS = 3  # more than 2 to the power of 90 is no count of anything


class Moved(Missing):
    """The variable changed at each try."""


class Local(msgspec.Struct, frozen=True):
    """A local variable of the innermost frame with this code.

    ``place`` is its place among the code's variables.
    """

    code: int
    place: int


class Global(msgspec.Struct, frozen=True):
    """A global variable: the dictionary of its module, and its name."""

    dictionary: int
    name: str


Referred: TypeAlias = Local | Global  # what is a reference to an object
Variable: TypeAlias = Referred | TensorVersion


class _Look(NamedTuple):
    """An object at one moment: its bytes from its type on, what led to it, and all addresses."""

    address: int
    data: bytes
    links: tuple[bytes, ...]
    places: tuple[tuple[int, int], ...]
    found: tuple[bytes, ...]


def local_of(frame: PythonFrame, name: str) -> Local | None:
    """Return a local variable of a function; None if it has none of this name."""
    # Up to 3.10 an argument that an inner function uses is there twice, and has its value in the
    # second place.
    places = [place for place, variable in enumerate(frame.code.variables) if variable == name]
    return Local(frame.code.address, places[-1]) if places else None


def local_integer(pid: int, holds: Callable[[Code], bool], name: str) -> int | None:
    """Return a variable of a function that the main thread of a process is in, if readable.

    ``holds`` says whether code is that of the function.
    """
    try:
        python = open_interpreter(pid)
    except Unreadable:
        return None
    with contextlib.closing(python.memory), contextlib.suppress(Missing, Unreadable):
        thread = python.main_thread()
        for frame in python.stack(thread):
            if holds(frame.code):
                variable = local_of(frame, name)
                return None if variable is None else IntegerReader(python, thread).read(variable)
    return None


class IntegerReader:
    """Reads variables of an interpreter. Remembers where they were found.

    Those of functions are read of ``thread``, and if that is not in a function, of the thread that
    is, which is ``thread`` from there on: each call of a function may come from another one.
    """

    def __init__(self, interpreter: Interpreter, thread: int) -> None:
        self._python = interpreter
        self.thread = thread
        self._slots = Slots(interpreter)
        self._known: dict[Variable, tuple[int, _Look]] = {}

    def read(self, variable: Variable) -> int:
        """Return the value of a variable; raises Missing if it has none now that is an ``int``.

        Raises Moved if it changed at each of some tries, and Unreadable if the memory is not
        as expected, or the process has ended.
        """
        if isinstance(variable, TensorVersion):
            return version_of(self._python, variable)
        known = self._known.get(variable)
        if known is not None and self._is_there(known[1]):
            return known[0]
        # Without the count of references, which changes all the time.
        look = self._referred(variable, DIGITS + 4 * _MOST_DIGITS - TYPE)
        if look is not None:
            if len(self._known) >= 64:
                self._known.clear()
            value = self._value(look.data)
            self._known[variable] = value, look
            return value
        self._python.main_thread()  # raises if the memory cannot be read at all
        raise Moved("it changes faster than it can be read")

    def _is_there(self, look: _Look) -> bool:
        """Say whether all that a look showed is there again: a fifth of the work of a new look."""
        try:
            return tuple(self._python.memory.read_together(*look.places)) == look.found
        except Unreadable:
            return False

    def _referred(self, variable: Referred, length: int) -> _Look | None:
        """Return ``length`` bytes of the object that a variable refers to; None if it moves on."""
        for _ in range(TRIES):
            with contextlib.suppress(Unreadable):  # what was followed led elsewhere meanwhile
                slot = self._slot(variable)
                before = self._look(slot, length)
                if before is None or self._slot(variable) != slot:
                    continue
                addresses = [self._python.untagged(word_at(link, 0)) for link in before.links]
                if addresses != [link.address for link in slot.links]:
                    continue
                if all(self._look(slot, length) == before for _ in range(LOOKS - 1)):
                    return before
        return None

    def _slot(self, variable: Referred) -> Slot:
        if isinstance(variable, Global):
            return self._slots.in_dictionary(variable.dictionary, variable.name)
        frame, offsets = self.frame_of(variable.code), self._python.offsets
        link = Link(frame + offsets.code, variable.code)
        return Slot(frame + offsets.values + 8 * variable.place, (link,), may_be_cell=True)

    def frame_of(self, code: int) -> int:
        """Return the innermost frame of the thread with this code, or of another thread.

        Raises Missing if there is none. The thread goes on during a walk, which may end early: in a
        loop of a few milliseconds one of twenty does.
        """
        others = itertools.islice(self._python.threads(), _MOST_THREADS)
        for thread in itertools.chain([self.thread] * WALKS, others):
            with contextlib.suppress(Unreadable):  # a thread that ends
                for frame, of_code in self._python.frames(thread):
                    if of_code == code:
                        self.thread = thread
                        return frame
        raise Missing("its function is not on the stack")

    def _look(self, slot: Slot, length: int) -> _Look | None:
        """Return the object that a reference leads to; None if it moved; raises Missing if none."""
        python, memory = self._python, self._python.memory
        reference = memory.read(slot.address, 8)
        path, beside = [slot.address], [(link.place, 8) for link in slot.links]
        for _ in range(2):
            address = python.untagged(word_at(reference, 0))
            if not address:
                raise Missing("it has no value")
            target = (
                address + TYPE,
                max(length, CELL_VALUE + 8 - TYPE) if slot.may_be_cell else length,
            )
            once = [*((place, 8) for place in path), target]
            found = memory.read_together(*beside, *once, *once, *once)
            first, second, third = (
                found[len(beside) + turn * len(once) :][: len(once)] for turn in range(3)
            )
            if not first == second == third or first[-2] != reference:
                return None
            data = first[-1]
            if not slot.may_be_cell or word_at(data, 0) != python.type("PyCell_Type"):
                links = tuple(found[: len(beside)])
                places = *beside, *once[:-1], (target[0], length)
                return _Look(
                    address, data[:length], links, places, (*links, *first[:-1], data[:length])
                )
            path.append(address + CELL_VALUE)
            reference = data[CELL_VALUE - TYPE :][:8]
        raise Missing("it is no int")

    def _value(self, data: bytes) -> int:
        """Return the number in an object's bytes from its type on."""
        python = self._python
        if word_at(data, 0) != python.types["PyLong_Type"]:
            raise Missing("it is no int")
        size = int.from_bytes(data[SIZE - TYPE :][:8], "little", signed=True)
        length, is_negative = (
            (size >> 3, size & 3 == 2) if python.offsets.has_tag else (abs(size), size < 0)
        )
        if not 0 <= length <= _MOST_DIGITS:
            raise Missing("it is larger than a count")
        digits = struct.unpack_from(f"<{length}I", data, DIGITS - TYPE)
        value: int = sum(digit << 30 * place for place, digit in enumerate(digits))
        return -value if is_negative else value
