"""Reads the dumps of torch's flight recorder: the collectives that a rank has begun and not ended.

A dump is a pickle of plain data. It is taken apart, opcode by opcode, and never loaded: anything
but plain data is refused. The fields are those of
``torch/csrc/distributed/c10d/FlightRecorderDetail.hpp``, version 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

VARIABLES = frozenset(
    {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "HOME", "XDG_CACHE_HOME"}
)
"""All that is read of an environment: it says where the dumps are written."""


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
    set_by_user = (
        environment.get(name)
        for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    )
    usual = (
        "/tmp/nccl_trace_rank_",
        f"{cache}/torch/comm_lib_trace_rank_",
        f"{cache}/torch/nccl_trace_rank_",
    )
    return [f"{prefix}{rank}" for prefix in (*filter(None, set_by_user), *usual)]


def read_dump(
    data: bytes, since_ns: int, is_library: Callable[[str], bool]
) -> tuple[Collective, ...]:
    """Return the collectives of a dump that have not ended, in order; raises BadDump.

    There are none if all of the dump is from before ``since_ns``.
    """
    found = _load(data)
    dump: dict[str, object] = found if isinstance(found, dict) else {}
    entries = dump.get("entries")
    if not isinstance(entries, list) or not _text(dump.get("version")).startswith("2."):
        raise BadDump("no dump of the flight recorder, version 2")
    rows = [one for one in entries if isinstance(one, dict)]
    if not any(
        isinstance(at_ns := one.get("time_created_ns"), int) and at_ns >= since_ns for one in rows
    ):
        return ()
    return tuple(_collective(one, is_library) for one in rows if _is_open(one))


def _is_open(entry: dict[str, Any]) -> bool:
    return not entry.get("retired") and entry.get("state") in ("scheduled", "started")


def _text(value: object) -> str:
    """Return a word of a dump; anything else may be of any depth, and is not written out."""
    return value[:300] if isinstance(value, str) else ""


def _collective(entry: dict[str, Any], is_library: Callable[[str], bool]) -> Collective:
    group, frames = entry.get("process_group"), entry.get("frames")
    lines = [
        f"{PurePath(file).name}:{line}"
        for frame in (frames if isinstance(frames, list) else ())
        if isinstance(frame, dict)
        and (file := _text(frame.get("filename")))
        and isinstance(line := frame.get("line"), int)
        and not is_library(file)
    ]
    number = entry.get("collective_seq_id") or entry.get("p2p_seq_id")
    name = _text(entry.get("profiling_name")).rpartition(":")[2]
    named = _text(group[-1]) if isinstance(group, tuple) and group else ""
    whole = number if isinstance(number, int) else 0
    return Collective(named, whole, name, _text(entry["state"]), lines[0] if lines else "")


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
