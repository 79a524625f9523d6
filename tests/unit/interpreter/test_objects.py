"""What frames of running Pythons hold, of each version that is here, and what generators and ranges
are at.
"""

from __future__ import annotations

import pytest
from support.interpreters import VERSIONS, Program, python, standing

from profd.daemon.interpreter import objects
from profd.daemon.interpreter.frames import PythonFrame, open_interpreter
from profd.daemon.interpreter.integers import OfGenerator, RangeLeft
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.interpreter.objects import Missing, generator_code, object_at

LOOPS = """
import contextlib, threading
class Batches:
    def __init__(self, count):
        self.left = count
    def __iter__(self):
        return self
    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left
def counted(iterable, unused=None):
    n = 0
    for item in iterable:
        n += 1
        yield item
def made(of_outer):
    def train():
        with threading.Lock():
            for epoch in range(3):
                for batch in counted(Batches(of_outer)):
                    with contextlib.suppress(ValueError):
                        for place, part in enumerate([1, 2]):
                            ready()
    return train
def short():
    ready()
made(5)()
short()
ready()
"""


def iterators(program: Program, function: str) -> list[str]:
    """Return the types of the iterators among what a function holds."""
    names = [one.type_name for one in program.held(function)]
    return [
        name for name in names if name in ("range_iterator", "generator", "enumerate", "Batches")
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_holds_the_iterators_of_its_loops(version: str) -> None:
    with standing(LOOPS, python(version)) as running:
        program = Program(running)
        assert iterators(program, "train") == ["range_iterator", "generator", "enumerate"]
        generator = next(one for one in program.held("train") if one.type_name == "generator")
        assert iterators(program, "ready") == []
        assert "cell" not in [one.type_name for one in program.held("train")]
        assert object_at(program.python, generator.address).type_name == "generator"
        # The generator waits, and its own frame is not on the stack; it holds what it goes through.
        code = generator_code(program.python, generator.address)
        assert (code.name, code.variables[:2]) == ("counted", ("iterable", "unused"))
        frame = PythonFrame(
            objects.generator_frame(program.python, generator.address, code.address), code, 0
        )
        assert [one.type_name for one in objects.held(program.python, frame)][:1] == ["Batches"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_generator_counts_and_ends_and_a_frame_that_has_ended_holds_nothing(version: str) -> None:
    with standing(LOOPS, python(version)) as running:
        program = Program(running)
        train = program.frame("train")

        def current() -> int:
            return next(
                one.address for one in program.held("train") if one.type_name == "generator"
            )

        code = generator_code(program.python, current())
        for _ in range(3):
            n = OfGenerator(current(), code.address, code.variables.index("n"))
            for batch in range(5):
                for _ in range(2):
                    assert program.reader.read(n) == 1 + batch
                    running.go_on()
        with pytest.raises(Missing):
            program.reader.read(n)
        assert [frame.code.name for frame in program.python.stack(program.thread)][:2] == [
            "ready",
            "short",
        ]
        assert objects.held(program.python, train) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_generator_of_another_code_has_no_such_variable(version: str) -> None:
    with standing(LOOPS, python(version)) as running:
        program = Program(running)
        held = {one.type_name: one.address for one in program.held("train")}
        other = program.frame("train").code.address
        for variable, why in (
            (OfGenerator(held["generator"], other, 0), "another code"),
            (OfGenerator(held["enumerate"], other, 0), "another type"),
            (RangeLeft(held["generator"]), "another type"),
        ):
            with pytest.raises(Missing, match=why):
                program.reader.read(variable)
        with pytest.raises(Missing, match="another type"):
            generator_code(program.python, held["enumerate"])


ENDED = """
def counted():
    n = 77
    yield n
    n = 78
kept, dropped = counted(), counted()
next(kept), next(dropped)
numbers, gone = iter(range(3, 100, 7)), iter(range(5))
large = iter(range(1 << 80))
ready()
next(kept, None), next(numbers)
others = [iter(range(70))]
del dropped, gone
ready()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_what_has_ended_or_gone_has_no_value(version: str) -> None:
    with standing(ENDED, python(version)) as running:
        program = Program(running)
        kept, dropped, gone, large = (
            program.object_of(name).address for name in ("kept", "dropped", "gone", "large")
        )
        code = generator_code(program.python, kept)
        variables = [OfGenerator(one, code.address, 0) for one in (kept, dropped)]
        assert [program.reader.read(one) for one in variables] == [77, 77]
        numbers = RangeLeft(program.object_of("numbers").address)
        assert [program.reader.read(one) for one in (RangeLeft(gone), numbers)] == [5, 14]
        with pytest.raises(Missing, match="another type"):
            program.reader.read(RangeLeft(large))
        running.go_on()
        with pytest.raises(Missing, match="has ended"):
            program.reader.read(variables[0])
        assert generator_code(program.python, kept) == code
        assert program.reader.read(numbers) == 13
        for variable in (variables[1], RangeLeft(gone)):
            with pytest.raises(Missing, match=r"has gone|another type|no memory"):
                program.reader.read(variable)


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
numbers = iter(range(5))
# What looks like a counted object, whose type is an object that is no type; and like a range iterator with -1 left.
untyped = struct.pack("3Q", 1, id(loader), 0)
no_range = struct.pack("2Q4q", 1, id(type(numbers)), 4, 0, -1, 3)
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
        assert program.reader.object_of(program.local("train", "queue")) == program.object_of(
            "queue"
        )
        assert object_at(program.python, program.object_of("Loader").type).type_name == "type"
        if program.python.version >= (3, 12):
            with pytest.raises(Missing, match="has gone"):
                program.object_of("nothing")
        queue = program.object_of("queue")
        with pytest.raises(Missing, match="has to be a type"):
            object_at(program.python, program.object_of("untyped").address + BYTES)
        with pytest.raises(Missing, match="no range"):
            program.reader.read(RangeLeft(program.object_of("no_range").address + BYTES))
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
    with standing(LOOPS) as running:
        program = Program(running)
        generator = next(
            one.address for one in program.held("train") if one.type_name == "generator"
        )
        code = generator_code(program.python, generator)
        for name in ("PyGen_Type", "PyRangeIter_Type", "PyType_Type"):
            del program.python.types[name]
        for variable in (OfGenerator(generator, code.address, 2), RangeLeft(generator)):
            with pytest.raises(Unreadable, match="does not export"):
                program.reader.read(variable)
        assert program.held("train") == []
        assert open_interpreter(running.pid).types.keys() >= {
            "PyGen_Type",
            "PyRangeIter_Type",
            "PyType_Type",
        }
