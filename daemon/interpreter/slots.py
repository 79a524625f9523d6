"""Finds the reference to a value: in a dictionary, or in what instances have instead of one.

                            3.8 to 3.10     3.11          3.12               3.13 on
    an instance's           tp_dictoffset   24 before it  24 before it       24 before it
    dictionary at
    or its values           -               32 before it  24 before, tagged  behind it
    its dictionary's keys   in a table with the values, or shared with other instances, values apart

The keys of values without a dictionary are those that the class has for its instances. Instances of
a type in C have their dictionary at ``tp_dictoffset`` in every version.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from profd.daemon.interpreter import offsets as layout
from profd.daemon.interpreter.frames import Interpreter
from profd.daemon.interpreter.memory import Unreadable, word_at
from profd.daemon.interpreter.objects import Missing, alive
from profd.daemon.interpreter.offsets import (
    DICT_KEYS,
    DICT_VALUES,
    TYPE,
    TYPE_BASIC_SIZE,
    TYPE_DICTIONARY,
    TYPE_FLAGS,
)

_MOST_KEYS = 100_000
_NO_SUCH = "there is no variable of this name"


class Link(NamedTuple):
    """A reference that was followed: where it lies, and the address that it has."""

    place: int
    address: int


class Slot(msgspec.Struct, frozen=True):
    """Where the reference to a value lies, as long as all ``links`` are as they were."""

    address: int
    links: tuple[Link, ...]
    may_be_cell: bool = False  # its value may be a cell, which has the value that is meant


class Slots:
    """Finds slots in an interpreter, and remembers each name's place in a table of keys.

    Everything raises Missing if there is no such value, and Unreadable if the memory is not as
    expected.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self._python = interpreter
        self._known: dict[tuple[int, str], tuple[int, Link]] = {}
        """By the owner of values and a name: the table of keys, and the entry there."""

    def in_dictionary(self, dictionary: int, name: str) -> Slot:
        """Return the slot of a name in a dictionary, which may share its keys."""
        python = self._python
        head = python.memory.read(dictionary, DICT_VALUES + 8)
        kind, keys, values = (word_at(head, at) for at in (TYPE, DICT_KEYS, DICT_VALUES))
        if kind != python.type("PyDict_Type"):
            raise Unreadable("what has to be a dictionary is none")
        links = [
            Link(dictionary + at, word)
            for at, word in ((TYPE, kind), (DICT_KEYS, keys), (DICT_VALUES, values))
        ]
        if values:
            return self._in_values(values, keys, (dictionary, name), links)
        key = self._key(keys, (dictionary, name))
        return Slot(key.place + 8, (*links, key))

    def of_attribute(self, instance: int, kind: int, name: str) -> Slot:
        """Return the slot of an attribute that an instance of a type has of its own.

        An attribute by its class or ``__slots__`` is none of its own. Raises Missing as well if the
        object is gone, or of another type.
        """
        python = self._python
        alive(python, instance, kind)
        links = [Link(instance + TYPE, kind)]
        first = TYPE_BASIC_SIZE
        of_type = python.memory.read(kind + first, TYPE_DICTIONARY + 8 - first)
        flags = word_at(of_type, TYPE_FLAGS - first)
        (at,) = struct.unpack_from("<q", of_type, TYPE_DICTIONARY - first)
        if flags & layout.HAS_MANAGED_DICTIONARY and python.offsets.dictionary is not None:
            at = python.offsets.dictionary
            values = self._values(instance, flags, word_at(of_type, 0), links)
            if values:
                place = kind + python.offsets.shared_keys
                keys = python.memory.word(place)
                return self._in_values(values, keys, (instance, name), [*links, Link(place, keys)])
        elif at <= 0:
            # Negative: behind the items of an object that has a number of them, as a tuple.
            raise Missing(
                "its object has its dictionary behind its items"
                if at
                else "its object has no dictionary"
            )
        dictionary = python.memory.word(instance + at)
        if not dictionary:
            raise Missing(_NO_SUCH)
        found = self.in_dictionary(dictionary, name)
        return Slot(found.address, (*links, Link(instance + at, dictionary), *found.links))

    def _values(self, instance: int, flags: int, size: int, links: list[Link]) -> int:
        """Return where an instance's values without a dictionary are, else 0; add to the links."""
        offsets, memory = self._python.offsets, self._python.memory
        assert offsets.dictionary is not None
        if offsets.array is not None:
            place = instance + offsets.array
            values = memory.word(place)
            links.append(Link(place, values))
            return values
        place = instance + offsets.dictionary
        word = memory.word(place)
        if offsets.are_valid is None:
            links.append(Link(place, word))
            return word + 1 if word & 1 else 0
        if word or not flags & layout.HAS_INLINE_VALUES:
            return 0
        if not memory.read(instance + size + offsets.are_valid, 1)[0]:
            raise Missing(_NO_SUCH)
        links.append(Link(place, 0))
        return instance + size

    def _in_values(self, values: int, keys: int, of: tuple[int, str], links: list[Link]) -> Slot:
        """Return the slot in an array of values, at the place that the name has among the keys."""
        key = self._key(keys, of)
        start, width, _ = self._table(keys)
        number = (key.place - start) // width
        return Slot(values + self._python.offsets.first_value + 8 * number, (*links, key))

    def _key(self, keys: int, of: tuple[int, str]) -> Link:
        python = self._python
        of_table, known = self._known.get(of, (0, Link(0, 0)))
        if of_table == keys and python.memory.word(known.place) == known.address:
            return known
        start, width, count = self._table(keys)
        table = python.memory.read(start, count * width)
        for number in range(count):
            # The value comes last, and the hash first if keys may be anything.
            at = (number + 1) * width - 16
            key = word_at(table, at)
            is_text = key and python.memory.word(key + TYPE) == python.type("PyUnicode_Type")
            if is_text and python.text(key) == of[1]:
                found = Link(start + at, key)
                self._known[of] = keys, found
                return found
        raise Missing(_NO_SUCH)

    def _table(self, keys: int) -> tuple[int, int, int]:
        """Return where a key table's entries begin, the bytes of each, and how many there are."""
        offsets, memory = self._python.offsets, self._python.memory
        head = memory.read(keys, offsets.indices)
        count = word_at(head, offsets.entries)
        if self._python.version >= (3, 11):
            index_bytes, is_general = 1 << head[9], head[10] == 0
        else:
            size, is_general = word_at(head, 8), True
            index_bytes = size * (1 if size <= 0xFF else 2 if size <= 0xFFFF else 4)
        if count > _MOST_KEYS or index_bytes > 16 * _MOST_KEYS:
            raise Unreadable("what has to be a table of keys is none")
        return keys + offsets.indices + index_bytes, 24 if is_general else 16, count
