"""Finds the reference to a value in the dictionary of a module."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from profd.daemon.interpreter.frames import Interpreter
from profd.daemon.interpreter.memory import Unreadable, word_at
from profd.daemon.interpreter.objects import Missing
from profd.daemon.interpreter.offsets import DICT_KEYS, TYPE

_MOST_KEYS = 100_000


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
        """By the dictionary and a name: the table of keys, and the entry there."""

    def in_dictionary(self, dictionary: int, name: str) -> Slot:
        """Return the slot of a name in a dictionary, whose keys are its own."""
        python = self._python
        head = python.memory.read(dictionary, DICT_KEYS + 8)
        kind, keys = word_at(head, TYPE), word_at(head, DICT_KEYS)
        if kind != python.type("PyDict_Type"):
            raise Unreadable("what has to be a dictionary is none")
        key = self._key(keys, (dictionary, name))
        # The value is behind its key.
        links = Link(dictionary + TYPE, kind), Link(dictionary + DICT_KEYS, keys), key
        return Slot(key.place + 8, links)

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
        raise Missing("there is no variable of this name")

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
