"""Objects of running Pythons, of each version that is here, and the names of their types."""

from __future__ import annotations

import pytest
from support.interpreters import VERSIONS, Program, python, standing

from profd.daemon.interpreter.frames import open_interpreter
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.interpreter.objects import Missing, object_at

BYTES = 32
"""Where a ``bytes`` object has its bytes."""
OBJECTS = """
import collections, struct
class Meta(type):
    pass
class Loader(metaclass=Meta):
    pass
class Naïve(Loader):
    pass
loader, naive, counter, queue = Loader(), Naïve(), 7 << 40, collections.deque()
nothing = None
# What looks like a counted object, whose type is an object that is no type.
untyped = struct.pack("3Q", 1, id(loader), 0)
def train(queue):
    inner = lambda: queue
    ready()
train(queue)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_an_object_has_the_name_of_its_type_and_what_is_none_has_none(version: str) -> None:
    with standing(OBJECTS, python(version)) as running:
        program = Program(running)
        names = [
            program.object_of(name).type_name
            for name in ("loader", "naive", "counter", "queue", "Loader")
        ]
        assert names == ["Loader", "Naïve", "int", "collections.deque", "Meta"]
        assert object_at(program.python, program.object_of("Loader").type).type_name == "type"
        if program.python.version >= (3, 12):
            with pytest.raises(Missing, match="has gone"):
                program.object_of("nothing")
        queue = program.object_of("queue")
        with pytest.raises(Missing, match="has to be a type"):
            object_at(program.python, program.object_of("untyped").address + BYTES)
        for address in (
            0,
            1,
            queue.address + 4,
            queue.address + 8,
            program.python.types["PyDict_Type"] + 8,
            1 << 46,
        ):
            with pytest.raises((Missing, Unreadable)):
                object_at(program.python, address)


def test_an_interpreter_without_a_symbol_is_read_as_far_as_that_goes() -> None:
    with standing(OBJECTS) as running:
        program = Program(running)
        loader = program.object_of("loader").address
        del program.python.types["PyType_Type"]
        with pytest.raises(Unreadable, match="does not export"):
            object_at(program.python, loader)
        assert open_interpreter(running.pid).types.keys() >= {"PyType_Type"}
