"""Attributes of objects in running Pythons, of each version that is here, wherever these versions
keep them.
"""

from __future__ import annotations

import pytest
from support.interpreters import VERSIONS, Program, python, standing

from profd.daemon.interpreter.integers import Attribute
from profd.daemon.interpreter.objects import Missing, alive

INSTANCES = """
class Few:
    def __init__(self):
        self.first = 1
        self.n = 500
class Base:
    n = -1
class Derived(Base):
    def __init__(self):
        self.n = 500
class Many:
    def __init__(self):
        for number in range(40):
            setattr(self, "name%d" % number, number)
        self.n = 500
class Broken(ValueError):
    n = 1
class Numbers(list):
    pass
class Fields(dict):
    pass
class Slotted(Few):
    __slots__ = ("slot",)
def other():
    pass
few, materialized, late, deleted, again = Few(), Few(), Few(), Few(), Few()
derived, many, broken, numbers, fields, slotted = Derived(), Many(), Broken(), Numbers(), Fields(), Slotted()
replaced, swapped, module, function = Few(), Few(), type(__import__("sys"))("made"), other
materialized.__dict__
del deleted.first
del again.n
again.n = 500
swapped.__dict__ = {"other": 1, "n": 500}
for one in (broken, numbers, fields, module, function):
    one.n = 500
late.__dict__["by key"] = 1
instances = [
    few, materialized, late, deleted, again, derived, many, broken, numbers, fields, slotted, swapped, module, function
]
while True:
    ready()
    for one in instances:
        one.n += 7
        one.other = 1
    # Others of these classes get names that these do not have.
    setattr(Few(), "later%d" % few.n, 1)
    many.__dict__["added%d" % many.n] = 0
"""
NAMES = (
    "few", "materialized", "late", "deleted", "again", "derived", "many", "broken", "numbers", "fields", "slotted",
    "swapped", "module", "function",
)  # fmt: skip


def attribute(program: Program, of: str, name: str) -> Attribute:
    owner = program.object_of(of)
    return Attribute(owner.address, owner.type, name)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_reading_is_the_value_that_the_attribute_has(version: str) -> None:
    with standing(INSTANCES, python(version)) as running:
        program = Program(running)
        attributes = {name: attribute(program, name, "n") for name in NAMES}
        for turn in range(
            60
        ):  # meanwhile dictionaries grow, and classes come to the end of the keys that they share
            values = {name: program.reader.read(one) for name, one in attributes.items()}
            assert values == dict.fromkeys(NAMES, 500 + 7 * turn)
            running.go_on()
        assert program.reader.read(attribute(program, "many", "name39")) == 39
        assert program.reader.read(attribute(program, "few", "first")) == 1


CHANGING = """
class Few:
    def __init__(self):
        self.first = 1
        self.n = 500
class Other(Few):
    pass
class Slots:
    __slots__ = ("n", "m")
    def __init__(self):
        self.n, self.m = 1, 2
class Pair(tuple):
    pass
class Classwide:
    n = 5
    @property
    def m(self):
        return 7
class Watched(Few):
    def __init__(self):
        super().__init__()
        self.few = Few()
        self.text = "500"
        self.true = True
        self.cell = (lambda m: lambda: m)(5).__closure__[0]  # a cell's value is a function's alone
class Empty(Few):
    __slots__ = ("slot",)
    def __init__(self):
        pass
deleted, becomes, cleared, freed, kept, bare = Few(), Few(), Few(), Few(), Few(), Few()
number = 500
empty = Empty()
slots, pair, classwide, plain, watched = Slots(), Pair([1]), Classwide(), object(), Watched()
pair.n = 500
ready()
del deleted.n
becomes.__class__ = Other
cleared.__dict__.clear()
del bare.__dict__
del number
del freed
others = [Other() for _ in range(3)]
ready()
deleted.n = 10
cleared.n = 20
kept.__dict__ = {"n": 30}
bare.n = 40
number = 50
ready()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_an_attribute_may_go_and_come(version: str) -> None:
    with standing(CHANGING, python(version)) as running:
        program = Program(running)
        read = program.reader.read
        of = {
            name: attribute(program, name, "n")
            for name in ("deleted", "becomes", "cleared", "freed", "kept", "bare")
        }
        number = program.of_module("number")
        assert read(number) == 500
        assert {read(one) for one in of.values()} == {500}
        running.go_on()
        for one in (of["deleted"], of["cleared"], of["bare"], number):
            with pytest.raises(Missing, match=r"no value|no variable of this name"):
                read(one)
        with pytest.raises(Missing, match="of another type"):
            read(of["becomes"])
        with pytest.raises(Missing):
            read(of["freed"])
        running.go_on()
        assert [read(of[name]) for name in ("deleted", "cleared", "kept", "bare")] == [
            10,
            20,
            30,
            40,
        ]
        assert read(number) == 50


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_attribute_of_its_own_has_no_value_and_attributes_of_attributes_are_followed(
    version: str,
) -> None:
    with standing(CHANGING, python(version)) as running:
        program = Program(running)
        absent = (
            ("slots", "n"),
            ("slots", "m"),
            ("plain", "n"),
            ("classwide", "n"),
            ("classwide", "m"),
            ("empty", "n"),
        )
        for of, name in absent:
            with pytest.raises(Missing, match=r"no dictionary|no variable of this name"):
                program.reader.read(attribute(program, of, name))
        if program.python.version < (3, 12):
            with pytest.raises(Missing, match="behind its items"):
                program.reader.read(attribute(program, "pair", "n"))
        else:
            assert program.reader.read(attribute(program, "pair", "n")) == 500
        for name in ("text", "true", "few", "cell"):
            with pytest.raises(Missing, match="no int"):
                program.reader.read(attribute(program, "watched", name))
        few = program.reader.object_of(attribute(program, "watched", "few"))
        assert few.type_name == "Few"
        assert program.reader.read(Attribute(few.address, few.type, "n")) == 500
        with pytest.raises(Missing, match="no variable of this name"):
            program.reader.object_of(attribute(program, "watched", "none"))
        with pytest.raises(Missing, match=r"has gone|no object"):
            alive(program.python, few.address + 4)
