"""How often a tensor of torch's was changed in place, read from outside.

    a tensor's object -> its TensorImpl -> its version counter -> a number of 32 bits

torch keeps this number on the host, also of a tensor on a GPU. No header says where: the TensorImpl
shows it, as it refers back to the object, and has the version counter just before that. From torch
2.10 on the object begins with its TensorImpl, and has it behind a flag before.
"""

from __future__ import annotations

import contextlib
import struct

import msgspec

from profd.daemon.interpreter.frames import Interpreter
from profd.daemon.interpreter.memory import Unreadable, word_at
from profd.daemon.interpreter.objects import Held, Missing, alive, object_at
from profd.daemon.interpreter.offsets import SIZE

_PLACES = range(24, 128, 8)
"""Where a TensorImpl may refer back to its object: behind its references and its storage."""


class TensorVersion(msgspec.Struct, frozen=True):
    """How often a tensor was changed in place: the address of its object, and of its type."""

    object: int
    type: int


def first_of_list(python: Interpreter, found: Held) -> Held:
    """Return the first object of a list; raises Missing if it is no list, or has none."""
    if found.type_name != "list" or not python.memory.word(found.address + SIZE):
        raise Missing("it is no list with objects")
    items = python.memory.word(found.address + SIZE + 8)
    return object_at(python, python.memory.word(items))


def version_of(python: Interpreter, tensor: TensorVersion) -> int:
    """Return how often a tensor was changed in place.

    Raises Missing if it is gone, or no tensor whose version can be read.
    """
    alive(python, tensor.object, tensor.type)
    for at in (16, 24):
        with contextlib.suppress(Unreadable):
            impl = python.memory.read(python.memory.word(tensor.object + at), _PLACES.stop)
            # The lowest bit says who owns whom.
            back = [place for place in _PLACES if word_at(impl, place) & ~1 == tensor.object]
            # Older versions have their interpreter in between.
            for place in (back[0] - 8, back[0] - 16) if back else ():
                with contextlib.suppress(Unreadable):
                    return _counted(python, word_at(impl, place))
    raise Missing("it is no tensor whose version can be read")


def _counted(python: Interpreter, counter: int) -> int:
    """Return the number of a version counter; raises Unreadable if none is at this address.

    Before it are a strong and a weak count of references. They had 64 bits each up to torch 1, so
    that the second one looks like 0.
    """
    references = struct.unpack("<2I", python.memory.read(counter + 8, 8))
    if not all(0 < count < 1 << 20 for count in references):
        raise Unreadable("it is no version counter")
    return int.from_bytes(python.memory.read(counter + 16, 4), "little")
