"""Objects of a running Python: whether one is alive, and the name of its type.

An object may be freed at any moment, and mostly its bytes stay as they were. But its count of
references is then null, or the address of the next free place, as CPython's allocator put it there.
So an object without a plausible count is gone.

Everything raises Missing if no such object is alive, and Unreadable if the memory is not as
expected.
"""

from __future__ import annotations

import struct

import msgspec

from profd.daemon.interpreter.frames import Interpreter
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.interpreter.offsets import IS_TYPE, TYPE, TYPE_FLAGS, TYPE_NAME
from profd.daemon.processes import PAGE_BYTES


class Missing(Exception):
    """There is no such object or value in the program now. The text says why."""


class Held(msgspec.Struct, frozen=True):
    """An object by its address, with the address and the name of its type.

    The name of a class is its name alone, as ``tqdm``. That of a type in C may be ``module.name``,
    as its author likes.
    """

    address: int
    type: int
    type_name: str


def object_at(interpreter: Interpreter, address: int) -> Held:
    """Return the object at an address, with its type."""
    kind = alive(interpreter, address)
    return Held(address, kind, _name_of(interpreter, kind))


def alive(interpreter: Interpreter, address: int, expected: int | None = None) -> int:
    """Return the address of an object's type, which may have to be an ``expected`` one.

    Objects that are never freed, such as None and small integers, look like freed ones.
    """
    if not address or address % 8:
        raise Missing("it is no object")
    references, kind = struct.unpack("<2Q", interpreter.memory.read(address, TYPE + 8))
    # Since 3.14 the highest 16 bits of the count are flags. No program lies below address 0x400000,
    # so neither does a place that its allocator freed.
    if not 0 < references & 0xFFFF_FFFF_FFFF < 0x400000:
        raise Missing("its object has gone")
    if expected is not None and kind != expected:
        raise Missing("its object is of another type")
    return int(kind)


def _name_of(interpreter: Interpreter, kind: int) -> str:
    memory = interpreter.memory
    of_types = interpreter.type("PyType_Type")
    meta = memory.word(kind + TYPE) if kind and not kind % 8 else 0
    # A class may have a metaclass, which is a class of the usual kind.
    may_be = meta and not meta % 8 and (meta == of_types or memory.word(meta + TYPE) == of_types)
    if not may_be or (meta != of_types and not memory.word(meta + TYPE_FLAGS) & IS_TYPE):
        raise Missing("what has to be a type is none")
    address, name = memory.word(kind + TYPE_NAME), b""
    while b"\0" not in name:
        if len(name) > 256:
            raise Unreadable("the name of a type is too long")
        at = address + len(name)
        name += memory.read(at, min(64, PAGE_BYTES - at % PAGE_BYTES))
    return name.partition(b"\0")[0].decode("utf-8", "replace")
