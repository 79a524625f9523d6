"""Reads the dumps of torch's flight recorder: the collectives that a rank has begun and not ended.

A dump is a pickle of plain data. It is taken apart, opcode by opcode, and never loaded: anything
but plain data is refused. The fields are those of
``torch/csrc/distributed/c10d/FlightRecorderDetail.hpp``, version 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
VARIABLES = frozenset([*_FILES, _PIPE, "HOME", "XDG_CACHE_HOME"])
"""All that is read of an environment: it says where the dumps are written, and asked for."""


class BadDump(Exception):
    """The data is no dump of the flight recorder."""


class Collective(NamedTuple):
    """A collective of one rank that has not ended.

    ``line`` is the innermost one of the user's code, as ``file:line``.
    """

    group: str
    number: int
    operation: str
    state: str
    line: str

    def in_words(self) -> str:
        at = f" at {self.line}" if self.line else ""
        return f"{self.operation} {self.number} of {self.group or 'a group'} is {self.state}{at}"


def paths_of(environment: Mapping[str, str], rank: int) -> Iterable[str]:
    """Return where a rank may have written its dump, the likeliest first."""
    home = environment.get("HOME", "/root")
    cache = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
    usual = (
        "/tmp/nccl_trace_rank_",
        f"{cache}/torch/comm_lib_trace_rank_",
        f"{cache}/torch/nccl_trace_rank_",
    )
    return [f"{prefix}{rank}" for prefix in (*filter(None, map(environment.get, _FILES)), *usual)]


def pipe_of(environment: Mapping[str, str], rank: int) -> str:
    """Return the name of the pipe by which a rank's dump is asked for; empty if there is none.

    ``DumpPipe`` of torch's ``ProcessGroupNCCL.hpp`` makes it, and the ``HeartbeatMonitor`` looks
    each second whether anything was written into it.
    """
    stem = environment.get(_PIPE)
    return PurePath(f"{stem}{rank}.pipe").name if stem else ""


def read_dump(
    data: bytes, since_ns: int, is_library: Callable[[str], bool]
) -> tuple[Collective, ...]:
    """Return the collectives of a dump that have not ended, in order; raises BadDump.

    There are none if all of the dump is from before ``since_ns``.
    """
    try:
        dump = msgspec.convert(_load(data), _Dump)
    except msgspec.ValidationError as error:
        raise BadDump(f"no dump of the flight recorder ({error})") from None
    if not dump.version.startswith("2."):
        raise BadDump("no dump of the flight recorder, version 2")
    if not any(one.time_created_ns >= since_ns for one in dump.entries):
        return ()
    return tuple(_collective(one, is_library) for one in dump.entries if one.is_open)


class _Frame(msgspec.Struct):
    filename: str = ""
    line: int = 0


class _Entry(msgspec.Struct):
    """A collective of a dump, whose texts may be of any length."""

    state: str = ""
    retired: bool = False
    profiling_name: str = ""
    process_group: tuple[str, ...] = ()
    collective_seq_id: int = 0
    p2p_seq_id: int = 0
    time_created_ns: int = 0
    frames: tuple[_Frame, ...] = ()

    @property
    def is_open(self) -> bool:
        return not self.retired and self.state in ("scheduled", "started")


class _Dump(msgspec.Struct):
    version: str
    entries: tuple[_Entry, ...]


def _collective(entry: _Entry, is_library: Callable[[str], bool]) -> Collective:
    own = (one for one in entry.frames if one.filename and not is_library(one.filename))
    lines = (f"{PurePath(_short(one.filename)).name}:{one.line}" for one in own)
    group, number = _short("".join(entry.process_group[-1:])), entry.collective_seq_id
    operation = _short(entry.profiling_name).rpartition(":")[2]
    return Collective(group, number or entry.p2p_seq_id, operation, entry.state, next(lines, ""))


def _short(text: str) -> str:
    return text[:300]


_PUSHED = frozenset(
    ["BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"]
)
_NEW: dict[str, Callable[[], object]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
# Opcodes that take so many values from the stack; None: all since the mark.
_TAKEN = {"TUPLE": None, "APPENDS": None, "SETITEMS": None, "APPEND": 1, "SETITEM": 2} | {
    f"TUPLE{number}": number for number in (1, 2, 3)
}


def _load(data: bytes) -> object:
    """Return the plain data of a pickle; raises BadDump if it holds anything else."""
    import pickletools  # it loads pickle itself, and few runs hang

    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, object] = {}
    try:
        for opcode, argument, _ in pickletools.genops(data):
            name = opcode.name
            if name in _PUSHED:
                stack.append(argument)
            elif name in _NEW:
                stack.append(_NEW[name]())
            elif name == "MARK":
                marks.append(len(stack))
            elif name in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                stack.append(memo[argument])
            elif name in _TAKEN:
                taken = _TAKEN[name]
                at = marks.pop() if taken is None else len(stack) - taken
                items = stack[at:]
                del stack[at:]
                _put(stack, name, items)
            elif name == "STOP":
                return stack.pop()
            elif name not in ("PROTO", "FRAME"):
                raise BadDump(f"a pickle that holds {name.lower()}")
    except (
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise BadDump(f"no pickle of plain data ({error or type(error).__name__})") from None
    raise BadDump("a pickle without an end")


def _put(stack: list[Any], name: str, items: list[Any]) -> None:
    if name.startswith("TUPLE"):
        stack.append(tuple(items))
    elif name.startswith("APPEND"):
        stack[-1].extend(items)
    else:
        stack[-1].update(zip(items[::2], items[1::2], strict=True))
