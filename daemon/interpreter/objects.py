"""Objects of a running Python: those that a frame holds besides its variables, types, generators.

    a frame -> its value stack, behind its variables: the iterators of its ``for`` loops and more
    an object -> its type -> the name of that
    a generator -> its own frame and code, whether it runs or waits

An object may be freed at any moment, and mostly its bytes stay as they were. But its count of
references is then null, or the address of the next free place, as CPython's allocator put it there.
So an object without a plausible count is gone.

Everything raises Missing if no such object is alive, and Unreadable if the memory is not as
expected.
"""

from __future__ import annotations

import contextlib
import struct

import msgspec

from profd.daemon.interpreter.frames import Code, Interpreter, PythonFrame
from profd.daemon.interpreter.memory import PAGE_BYTES, Unreadable
from profd.daemon.interpreter.offsets import IS_TYPE, TYPE, TYPE_FLAGS, TYPE_NAME


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


def held(interpreter: Interpreter, frame: PythonFrame) -> list[Held]:
    """Return the objects on the value stack of a frame, the outermost first, 20 at most.

    There are none if the frame has ended. The iterator of each ``for`` loop that runs is among
    them; ``with`` blocks and unfinished expressions put other objects in between. How far the stack
    reaches is not in memory while the function runs. So objects that it held before may follow:
    check that one changes, and keeps its type, before using it.
    """
    offsets, memory = interpreter.offsets, interpreter.memory
    first = frame.address + offsets.values + 8 * len(frame.code.variables)
    if offsets.stack is not None:
        # Up to 3.10 a frame is an object, which its code keeps for the next call. The names of
        # an outer function's variables are not among those of the code.
        try:
            alive(interpreter, frame.address)
        except Missing:
            return []
        stack = memory.word(frame.address + offsets.stack)
        if not first <= stack <= first + 8 * 4_096:
            return []
        first = stack
    count = min(frame.code.stack_size, 20)
    code, slots = memory.read_together((frame.address + offsets.code, 8), (first, 8 * count))
    memory.word(frame.address)  # raises if the process has ended
    if interpreter.untagged(int.from_bytes(code, "little")) != frame.code.address:
        return []
    found = []
    for (reference,) in struct.iter_unpack("<Q", slots):
        with contextlib.suppress(Missing, Unreadable):
            found.append(object_at(interpreter, interpreter.untagged(reference)))
    return found


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


def generator_code(interpreter: Interpreter, address: int) -> Code:
    """Return the code of a generator, which may have ended."""
    offsets = interpreter.offsets
    alive(interpreter, address, interpreter.type("PyGen_Type"))
    at = (
        offsets.generator_frame + offsets.code
        if offsets.generator_code is None
        else offsets.generator_code
    )
    return interpreter.code(interpreter.untagged(interpreter.memory.word(address + at)))


def generator_frame(interpreter: Interpreter, address: int, code: int) -> int:
    """Return the address of the own frame of a generator with this code, unless that has ended."""
    offsets, memory = interpreter.offsets, interpreter.memory
    alive(interpreter, address, interpreter.type("PyGen_Type"))
    if offsets.generator_state is None:
        frame = memory.word(address + offsets.generator_frame)
    else:
        state = int.from_bytes(
            memory.read(address + offsets.generator_state, 1), "little", signed=True
        )
        frame = address + offsets.generator_frame if state < offsets.ended else 0
    if not frame:
        raise Missing("its generator has ended")
    if interpreter.untagged(memory.word(frame + offsets.code)) != code:
        raise Missing("its generator has another code")
    return frame


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
