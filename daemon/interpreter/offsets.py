"""The offsets of fields in the structures of CPython, by minor version, on 64 bits.

``benchmarks/truth/interpreteroffsets.py`` prints these numbers for an interpreter at hand, from its
headers by ``offsetof``; the table holds what it printed for 3.8.18, 3.9.18, 3.10.13, 3.11.7,
3.12.1, 3.13.0, 3.14.10 and 3.15.2. ``benchmarks/truth/interpreteroffsets.c`` names the headers.

From 3.13 on the interpreter has most of them at the beginning of ``_PyRuntime``
(``_Py_DebugOffsets``, in internal/pycore_runtime.h, and since 3.14 in
internal/pycore_debug_offsets.h): those of its runtime, interpreter and thread states, which change
from release to release, are taken from there, and all others have to be those of the table.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from profd.daemon.interpreter.memory import FreeThreaded, Memory, Unreadable


class Offsets(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets in bytes. A ``None`` is of what a version does not have."""

    # _PyRuntimeState
    main_interpreter: int
    main_thread: int
    lock: int  # ceval.gil: from 3.12 on its address, which is in PyInterpreterState
    # PyInterpreterState
    threads: int
    collector: int | None = None  # gc; 3.8 has it elsewhere, and in 3.14 it is another
    # PyThreadState: from 3.11 to 3.12 its frame lies behind a _PyCFrame
    next_thread: int
    interpreter: int
    ident: int
    frame: int
    frame_of_c: int | None = None
    # PyFrameObject, _PyInterpreterFrame
    code: int
    previous: int
    globals: int
    values: int
    # f_lasti: in bytes from the code's beginning, in 3.10 in pairs of them; from 3.11 to 3.12
    # prev_instr, the address of the instruction that began last or of the last word of its cache;
    # from 3.13 on instr_ptr, its address
    instruction: int
    # PyCodeObject: from 3.11 on all names of variables are in one tuple
    file: int
    name: int
    first_line: int
    variables: int
    cells: int | None = None
    line_table: (
        int  # co_lnotab up to 3.9, co_linetable from 3.10 on, which is another format from 3.11 on
    )
    # PyDictKeysObject
    entries: int
    indices: int
    has_tag: bool  # PyLongObject: its sign and length were in ob_size up to 3.11
    # PyTupleObject, PyASCIIObject, PyCompactUnicodeObject
    items: int
    ascii: int
    compact: int
    first_instruction: int | None = None  # PyCodeObject: co_code_adaptive, in it from 3.11 on
    # the lowest bits of a reference from a frame say how it is counted
    has_tagged_references: bool


TYPE = 8  # of PyObject: where the address of its type is
SIZE = 16  # of PyVarObject, PyLongObject and PyASCIIObject: size, or length
DIGITS = 24  # of PyLongObject; each has 30 bits in 4 bytes
DICT_KEYS = 32
BYTES = 32  # of PyBytesObject: its bytes
CELL_VALUE = 16
STRING_STATE = 32
TYPE_NAME, TYPE_FLAGS = 24, 168
IS_TYPE = 1 << 31
"""The flag of a type whose instances are types."""

_TABLE = """
    field                       3.8   3.9  3.10  3.11  3.12  3.13  3.14  3.15
    main_interpreter             40    40    40    48    48   640   816   944
    main_thread                  72    72    72    80    64   656   832   960
    lock                       1152   352   352   360   384    16    16    16
    threads                       8     8     8    16    72  7344  7344  7336
    collector                     -   616   616   648   112  7400     -     -
    next_thread                   8     8     8     8     8     8     8     8
    interpreter                  16    16    16    16    16    16    16    16
    ident                       176   176   176   152   136   152   152   176
    frame                        24    24    24    56    56    72    72    72
    frame_of_c                    -     -     -     8     0     -     -     -
    code                         32    32    32    32     0     0     0     0
    previous                     24    24    24    48     8     8     8     8
    globals                      48    48    48     8    24    24    24    24
    values                      360   360   352    72    72    72    80    80
    instruction                 104   104    96    56    56    56    56    56
    file                        104   104   104   112   112   112   112   112
    name                        112   112   112   120   120   120   120   120
    first_line                   40    40    40    72    68    68    68    68
    variables                    72    72    72    96    96    96    96    96
    cells                        88    88    88     -     -     -     -     -
    line_table                  120   120   120   136   136   136   136   136
    entries                      32    32    32    24    24    24    24    24
    indices                      40    40    40    32    32    32    32    32
    has_tag                       0     0     0     0     1     1     1     1
    items                        24    24    24    24    24    24    32    32
    ascii                        48    48    48    48    40    40    40    40
    compact                      72    72    72    72    56    56    56    56
    first_instruction             -     -     -   184   192   200   208   208
    has_tagged_references         0     0     0     0     0     0     1     1
"""
"""The offsets by version; a dash is of what a version does not have."""


def _by_version() -> Iterator[tuple[tuple[int, int], Offsets]]:
    (_, *versions), *rows = map(str.split, _TABLE.strip().splitlines())
    for column, version in enumerate(versions, 1):
        known = {row[0]: int(row[column]) for row in rows if row[column] != "-"}
        major, minor = map(int, version.split("."))
        yield (major, minor), msgspec.convert(known, Offsets, strict=False)


BY_VERSION = dict(_by_version())
_FIELDS = (
    "version free_threaded runtime_size finalizing interpreters_head interpreter_size "
    "interpreter_id interpreter_next threads_head threads_main@14 gc imports_modules sysdict "
    "builtins ceval_gil gil_runtime_state gil_enabled gil_locked gil_holder code_generation@14 "
    "tlbc_generation@14 thread_size thread_prev thread_next thread_interp current_frame "
    "base_frame@15 last_profiled_frame@15 last_profiled_frame_seq@15 thread_id native_thread_id "
    "datastack_chunk thread_status holds_gil@15 gil_requested@15 current_exception@15 "
    "exc_state@15 exc_value@15 frame_size previous executable instr_ptr localsplus owner "
    "stackpointer@14 tlbc_index@14 code_size filename name qualname linetable firstlineno "
    "argcount localsplusnames localspluskinds co_code_adaptive co_tlbc@14 object_size ob_type"
)
"""The fields of ``_Py_DebugOffsets`` behind its cookie, 8 bytes each, up to the last one needed.

Some are there from a minor version on.
"""
_OF_OBJECTS = {
    "previous": "previous", "executable": "code", "localsplus": "values", "instr_ptr":
    "instruction",
    "filename": "file", "name": "name", "firstlineno": "first_line", "localsplusnames": "variables",
    "linetable": "line_table", "co_code_adaptive": "first_instruction",
}  # fmt: skip
"""Fields that have to be as in the table, with our names."""


def offsets_of(memory: Memory, runtime: int, version: tuple[int, int]) -> Offsets:
    """Return the offsets of an interpreter by its ``_PyRuntime``; raises Unreadable if unknown."""
    known = BY_VERSION.get(version)
    if known is None:
        raise Unreadable(f"the structures of Python {version[0]}.{version[1]} are not known")
    if version < (3, 13):
        return known
    fields = (field.partition("@") for field in _FIELDS.split())
    names = [name for name, _, since in fields if version[1] >= int(since or 0)]
    data = memory.read(runtime, 8 * (len(names) + 1))
    if not data.startswith(b"xdebugpy"):
        raise Unreadable("its runtime does not begin as that of CPython does")
    said = dict(zip(names, struct.unpack(f"<{len(names)}Q", data[8:]), strict=True))
    if said["free_threaded"]:
        raise FreeThreaded("it is a free-threaded Python, whose structures are others")
    if (said["version"] >> 24, said["version"] >> 16 & 0xFF) != version:
        raise Unreadable("its runtime says another version than its file")
    if said["ob_type"] != TYPE or any(
        said[name] != getattr(known, ours) for name, ours in _OF_OBJECTS.items()
    ):
        raise Unreadable(f"its structures are not those of Python {version[0]}.{version[1]}")
    ahead = said["interpreters_head"] + 8
    return replace(
        known,
        main_interpreter=ahead,
        main_thread=ahead + known.main_thread - known.main_interpreter,
        lock=said["ceval_gil"],
        threads=said["threads_head"],
        collector=known.collector and said["gc"],
        next_thread=said["thread_next"],
        interpreter=said["thread_interp"],
        ident=said["thread_id"],
        frame=said["current_frame"],
    )
