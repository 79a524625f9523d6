"""Where the frames of a running Python's threads, and their variables, lie in memory.

    _PyRuntime -> main interpreter -> its threads -> a thread's innermost frame -> its callers
    a frame -> its code: file, name, names of its variables
            -> the references of its local variables, in the order of these names
            -> the dictionary of its module's globals

Every reference that is followed is checked: an object has a type, one of the interpreter's own.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from profd.daemon import processes
from profd.daemon.interpreter.memory import (
    MOST_PROGRAMS,
    Memory,
    Unreadable,
    exported,
    mapped_files,
    word_at,
)
from profd.daemon.interpreter.offsets import SIZE, STRING_STATE, TYPE, Offsets, offsets_of

TYPES = (
    "PyCode_Type",
    "PyUnicode_Type",
    "PyTuple_Type",
    "PyDict_Type",
    "PyLong_Type",
    "PyCell_Type",
)
MAY_BE_MISSING = ("PyType_Type", "PyBytes_Type")
"""An interpreter that exports none of these is read, too, as far as they are not needed."""


# Characters of all codes that are kept: a thousand of usual functions, and 8 MiB at most.
_MOST_KEPT = 2 << 20


class Code(msgspec.Struct, frozen=True):
    """A code object: ``variables`` names its variables in the order of its frames."""

    address: int
    file: str
    name: str
    first_line: int
    variables: tuple[str, ...]

    @property
    def length(self) -> int:
        """The characters that it takes to keep, with the overhead of each text."""
        texts = self.file, self.name, *self.variables
        return sum(map(len, texts)) + 64 * len(texts)


class PythonFrame(msgspec.Struct, frozen=True):
    """A frame on the stack of a thread. ``globals`` is the address of its module's dictionary."""

    address: int
    code: Code
    globals: int


class Interpreter:
    """A running CPython.

    Everything raises Unreadable if its memory is not as expected, or if it has ended.
    """

    def __init__(
        self, memory: Memory, version: tuple[int, int], runtime: int, types: dict[str, int]
    ) -> None:
        self.memory, self.version, self.types = memory, version, types
        self.offsets: Offsets = offsets_of(memory, runtime, version)
        self._runtime = runtime
        at = self.offsets
        self._code_places = at.file, at.name, at.variables, at.cells or at.variables, at.line_table
        self._code_bytes = max(*self._code_places, at.first_line) + 8
        self._kept: dict[tuple[int, ...], Code] = {}
        self._kept_length = 0

    def interpreter(self) -> int:
        """Return the address of the state of the main interpreter."""
        return self.memory.word(self._runtime + self.offsets.main_interpreter)

    def lock(self) -> int:
        """Return the address of the lock that a thread of it holds while it runs Python."""
        if self.version < (3, 12):
            return self._runtime + self.offsets.lock
        return self.memory.word(self.interpreter() + self.offsets.lock)

    def is_newest(self) -> bool:
        """Say whether the main interpreter was made last, so that no other one lives."""
        return (
            self.memory.word(self._runtime + self.offsets.main_interpreter - 8)
            == self.interpreter()
        )

    def threads(self) -> Iterator[int]:
        """Yield the addresses of the states of the main interpreter's threads, the newest first."""
        interpreter = self.interpreter()
        thread = self.memory.word(interpreter + self.offsets.threads)
        for _ in range(10_000):
            if not thread:
                return
            if self.memory.word(thread + self.offsets.interpreter) != interpreter:
                raise Unreadable("a thread of it is of no interpreter")
            yield thread
            thread = self.memory.word(thread + self.offsets.next_thread)

    def main_thread(self) -> int:
        return self.thread(self.memory.word(self._runtime + self.offsets.main_thread))

    def thread(self, ident: int) -> int:
        """Return the address of the state of the thread with this id of Python's."""
        for thread in self.threads():
            if self.memory.word(thread + self.offsets.ident) == ident:
                return thread
        raise Unreadable("a thread that is looked for is not among its threads")

    def stack(self, thread: int) -> list[PythonFrame]:
        """Return the frames of a thread, the innermost first.

        Those that change meanwhile may be missing, or twice.
        """
        return [
            PythonFrame(address, code, self.memory.word(address + self.offsets.globals))
            for address, at in self.frames(thread)
            for code in self.codes((at,))
        ]

    def codes(self, addresses: Iterable[int]) -> list[Code]:
        """Return the codes at these addresses, as far as there are any."""
        found = map(self._code_at, addresses)
        # Where C calls into Python, 3.12 has a shim.
        return [code for code in found if code is not None and code.file != "<shim>"]

    def frames(self, thread: int, most: int = 2_000) -> Iterator[tuple[int, int]]:
        """Yield the addresses of ``most`` frames of a thread and of their codes.

        The innermost comes first.
        """
        offsets, memory = self.offsets, self.memory
        address = memory.word(thread + offsets.frame)
        if offsets.frame_of_c is not None and address:
            address = memory.word(address + offsets.frame_of_c)
        first, last = sorted((offsets.code, offsets.previous))
        for _ in range(most):
            if not address:
                return
            data = memory.read(address + first, last - first + 8)
            yield address, self.untagged(word_at(data, offsets.code - first))
            address = word_at(data, offsets.previous - first)

    def untagged(self, reference: int) -> int:
        """Return the address that a frame's reference to an object has."""
        if not self.offsets.has_tagged_references:
            return reference
        return 0 if reference & 3 == 3 else reference & ~3

    def type(self, name: str) -> int:
        """Return the address of one of the interpreter's own types, by the name of its symbol."""
        if name not in self.types:
            raise Unreadable(f"it does not export {name}")
        return self.types[name]

    def code(self, address: int) -> Code:
        found = self._code_at(address)
        if found is None:
            raise Unreadable("what has to be a code is none")
        return found

    def text(self, address: int) -> str:
        head = self._object(address, "PyUnicode_Type", STRING_STATE + 4)
        length = word_at(head, SIZE)
        (state,) = struct.unpack_from("<I", head, STRING_STATE)
        kind, is_compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        if length > 4_096 or not is_compact or kind not in (1, 2, 4):
            raise Unreadable("a name of it is no name")
        at = self.offsets.ascii if is_ascii else self.offsets.compact
        codec = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[kind]
        return self.memory.read(address + at, length * kind).decode(codec, "replace")

    def _code_at(self, address: int) -> Code | None:
        """Return the code at an address, None if there is none.

        A module's code is gone once it is imported, and another one may lie there since: so a known
        code is recognized by what it refers to as well.
        """
        data = self.memory.read(address, self._code_bytes) if address else b""
        if not data or word_at(data, TYPE) != self.type("PyCode_Type"):
            return None
        first_line = word_at(data, self.offsets.first_line) & 0xFFFFFFFF
        known_by = address, *(word_at(data, at) for at in self._code_places), first_line
        if known_by not in self._kept:
            code = self._describe(*known_by)
            self._kept_length += code.length
            if self._kept_length > _MOST_KEPT:
                self._kept.clear()
                self._kept_length = code.length
            self._kept[known_by] = code
        return self._kept[known_by]

    def _describe(
        self,
        address: int,
        file: int,
        name: int,
        variables: int,
        cells: int,
        _: int,
        first_line: int,
    ) -> Code:
        names = self._names(variables)
        if self.offsets.cells is not None:
            names += self._names(cells)
        return Code(address, self.text(file), self.text(name), first_line, names)

    def _names(self, address: int) -> tuple[str, ...]:
        head = self._object(address, "PyTuple_Type", SIZE + 8)
        length = word_at(head, SIZE)
        if length > 4_096:
            raise Unreadable("a function of it has too many variables")
        items = self.memory.read(address + self.offsets.items, length * 8) if length else b""
        names, left = [], 1 << 14  # characters: a thousand of usual names
        for (item,) in struct.iter_unpack("<Q", items):
            names.append(self.text(item))
            left -= len(names[-1])
            if left < 0:
                raise Unreadable("the variables of a function of it have names that are too long")
        return tuple(names)

    def _object(self, address: int, kind: str, length: int) -> bytes:
        data = self.memory.read(address, length)
        if word_at(data, TYPE) != self.type(kind):
            raise Unreadable(
                f"what has to be a {kind.removeprefix('Py').removesuffix('_Type').lower()} is none"
            )
        return data


def open_interpreter(pid: int) -> Interpreter:
    """Find the CPython in a process; raises Unreadable, with the reason, if none can be read."""
    memory, maps, executable = Memory(pid), processes.maps(pid), processes.link(pid, "exe")
    mapped = mapped_files(maps)
    # Its library before the executable.
    programs = [
        (start, path) for start, path in mapped if path.rpartition("/")[2].startswith("libpython3")
    ]
    programs += [(start, path) for start, path in mapped if path == executable]
    try:
        for start, path in programs[:MOST_PROGRAMS]:
            symbols = exported(memory, start, ("_PyRuntime", "Py_Version", *TYPES, *MAY_BE_MISSING))
            if "_PyRuntime" not in symbols or not symbols.keys() >= set(TYPES):
                continue
            version = _version(memory, symbols, (path.rpartition("/")[2], maps))
            types = {name: symbols[name] for name in (*TYPES, *MAY_BE_MISSING) if name in symbols}
            return Interpreter(memory, version, symbols["_PyRuntime"], types)
        raise Unreadable("no CPython is in it")
    except BaseException:
        memory.close()
        raise


def count_threads(pid: int) -> int:
    """Return how many threads of a process run Python; 1 if it cannot be read, or not yet."""
    with contextlib.suppress(Unreadable):
        python = open_interpreter(pid)
        with contextlib.closing(python.memory):
            return len(list(python.threads()))
    return 1


def _version(memory: Memory, symbols: dict[str, int], names: Sequence[str]) -> tuple[int, int]:
    """Return the version, from the interpreter since 3.11, else from its files' names."""
    if "Py_Version" in symbols:
        version = memory.word(symbols["Py_Version"])
        return version >> 24 & 0xFF, version >> 16 & 0xFF
    for name in names:
        if named := re.search(r"python3\.(\d{1,2})\b", name):
            return 3, int(named[1])
    raise Unreadable("neither the process nor the names of its files say its version")
