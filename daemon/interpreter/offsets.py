"""The offsets of fields in the structures of CPython, by minor version, on 64 bits.

``benchmarks/interpreteroffsets.py`` prints these numbers for an interpreter at hand, from its
headers by ``offsetof``; the table holds what it printed for 3.8.18, 3.9.18, 3.10.13, 3.11.7,
3.12.1, 3.13.0, 3.14.10 and 3.15.2. ``benchmarks/interpreteroffsets.c`` names the headers.

From 3.13 on the interpreter has most of them at the beginning of ``_PyRuntime``
(``_Py_DebugOffsets``, in internal/pycore_runtime.h, and since 3.14 in
internal/pycore_debug_offsets.h): those of its runtime, interpreter and thread states, which change
from release to release, are taken from there, and all others have to be those of the table.
"""

from __future__ import annotations

import struct

import msgspec
from msgspec.structs import replace

from profd.daemon.interpreter.memory import FreeThreaded, Memory, Unreadable


class Offsets(msgspec.Struct, frozen=True):
    """Offsets in bytes. A ``None`` is of what a version does not have."""

    # _PyRuntimeState
    main_interpreter: int
    main_thread: int
    # PyInterpreterState
    threads: int
    collector: int | None  # gc; 3.8 has it elsewhere, and in 3.14 it is another
    # PyThreadState: from 3.11 to 3.12 its frame lies behind a _PyCFrame
    next_thread: int
    interpreter: int
    ident: int
    frame: int
    frame_of_c: int | None
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
    cells: int | None
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
    has_tagged_references: bool = False


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

_3_8 = Offsets(
    main_interpreter=40, main_thread=72, threads=8, collector=None,
    next_thread=8, interpreter=16, ident=176, frame=24, frame_of_c=None,
    code=32, previous=24, globals=48, values=360, instruction=104,
    file=104, name=112, first_line=40, variables=72, cells=88, line_table=120,
    entries=32, indices=40, has_tag=False, items=24, ascii=48, compact=72,
)  # fmt: skip
_3_11 = Offsets(
    main_interpreter=48, main_thread=80, threads=16, collector=648,
    next_thread=8, interpreter=16, ident=152, frame=56, frame_of_c=8,
    code=32, previous=48, globals=8, values=72, instruction=56,
    file=112, name=120, first_line=72, variables=96, cells=None, line_table=136,
    first_instruction=184,
    entries=24, indices=32, has_tag=False, items=24, ascii=48, compact=72,
)  # fmt: skip
_3_12 = replace(
    _3_11, main_thread=64, threads=72, collector=112, ident=136, frame_of_c=0, code=0, previous=8,
    globals=24,
    first_line=68, has_tag=True, ascii=40, compact=56,
    first_instruction=192,
)  # fmt: skip
_3_13 = replace(
    _3_12, main_interpreter=640, main_thread=656, threads=7344, collector=7400, ident=152, frame=72,
    frame_of_c=None, first_instruction=200,
)  # fmt: skip
_3_14 = replace(
    _3_13, main_interpreter=816, main_thread=832, collector=None, values=80, items=32,
    has_tagged_references=True,
    first_instruction=208,
)  # fmt: skip
_3_15 = replace(_3_14, main_interpreter=944, main_thread=960, threads=7336, ident=176)

BY_VERSION = {
    (3, 8): _3_8,
    (3, 9): replace(_3_8, collector=616),
    (3, 10): replace(_3_8, collector=616, values=352, instruction=96),
    (3, 11): _3_11,
    (3, 12): _3_12,
    (3, 13): _3_13,
    (3, 14): _3_14,
    (3, 15): _3_15,
}

_FIELDS = (
    "version free_threaded runtime_size finalizing interpreters_head interpreter_size "
    "interpreter_id interpreter_next threads_head {threads_main}gc imports_modules sysdict "
    "builtins ceval_gil gil_runtime_state gil_enabled gil_locked gil_holder {generations}"
    "thread_size thread_prev thread_next thread_interp current_frame {frames}thread_id "
    "native_thread_id datastack_chunk thread_status {after_status}frame_size previous executable "
    "instr_ptr localsplus owner {after_owner}code_size filename name qualname linetable "
    "firstlineno argcount localsplusnames localspluskinds co_code_adaptive {tlbc}object_size "
    "ob_type"
)
_LATER = {
    "threads_main": "threads_main ",
    "generations": "code_generation tlbc_generation ",
    "tlbc": "co_tlbc ",
}
_NONE = {
    "threads_main": "",
    "generations": "",
    "frames": "",
    "after_status": "",
    "after_owner": "",
    "tlbc": "",
}
_IN_RUNTIME = {
    (3, 13): _FIELDS.format(**_NONE),
    (3, 14): _FIELDS.format(**{**_NONE, **_LATER, "after_owner": "stackpointer tlbc_index "}),
    (3, 15): _FIELDS.format(
        **{
            **_LATER,
            "frames": "base_frame last_profiled_frame last_profiled_frame_seq ",
            "after_status": "holds_gil gil_requested current_exception exc_state exc_value ",
            "after_owner": "stackpointer tlbc_index ",
        }
    ),
}
"""The fields of ``_Py_DebugOffsets`` behind its cookie, 8 bytes each, up to the last one needed."""
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
    if version not in _IN_RUNTIME:
        return known
    names = _IN_RUNTIME[version].split()
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
        threads=said["threads_head"],
        collector=known.collector and said["gc"],
        next_thread=said["thread_next"],
        interpreter=said["thread_interp"],
        ident=said["thread_id"],
        frame=said["current_frame"],
    )
