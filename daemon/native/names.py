"""Names of native functions for people: demangled, without arguments, and without the plumbing."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

PYTHON = re.compile(r"_?PyEval_EvalFrame|_TAIL_CALL_")
"""Functions of CPython that run Python code: what they call stands above a frame of Python."""
_PLUMBING = re.compile(
    # how CPython calls what is written in C
    r"cfunction_|method_vectorcall|slot_tp_|type_call|thread_run|pythread_wrapper"
    r"|_?PyObject_(Vectorcall|Call|MakeTpCall|FastCall)|_PyObject_|PyCFunction_"
    r"|ffi_call|_ctypes_callproc|PyCFuncPtr_call"
    # how threads and programs begin
    r"|start_thread|clone3?$|_?_libc_start|_start$|execute_native_thread_routine"
)
_LIBC = re.compile(r"lib(c|pthread)[-.]")
_RUST = re.compile(r"[sB][0-9A-Za-z]*_|([1-9]\d*)_?|.")
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_LONGEST = 120
UNKNOWN = "?"


class NamedFrame(NamedTuple):
    """A native function and the file that it is in; the name is empty if the file has none."""

    name: str
    file: str

    def __str__(self) -> str:
        return f"{short(demangled(self.name)) or UNKNOWN} ({self.file})"


def above_python(frames: Sequence[NamedFrame]) -> tuple[list[str], bool]:
    """Return the frames above the first that runs Python code, the innermost first.

    The second value is True if there is such a frame.
    """
    found: list[NamedFrame] = []
    for frame in frames:
        if PYTHON.match(frame.name):
            return list(map(str, found)), True
        if not _PLUMBING.match(frame.name):
            found.append(frame)
    # Most C libraries have no names of the functions with which a thread begins.
    while found and not found[-1].name and _LIBC.match(found[-1].file):
        found.pop()
    return list(map(str, found)), False


@lru_cache(4096)
def demangled(name: str) -> str:
    """Return the name of a function of C++ or Rust as its source has it."""
    if name.startswith("_R"):
        return _of_rust(name)
    demangle = _demangler() if name.startswith("_Z") else None
    at = demangle(name.partition(".")[0].encode(), None, None, None) if demangle else None
    if not at:
        return name
    try:
        return _RUST_HASH.sub("", ctypes.string_at(at).decode(errors="replace"))
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(at))


@lru_cache(1)
def _demangler() -> Callable[..., int | None] | None:
    """Return the function of the C++ library, if this machine has one."""
    with contextlib.suppress(OSError, AttributeError):
        found = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        found.restype = ctypes.c_void_p
        return found
    return None


def _of_rust(name: str) -> str:
    """Return the parts of a path in Rust's own form, each once."""
    found, at = list[str](), 2
    while at < len(name) and len(found) < 8:
        match = _RUST.match(name, at)
        assert match is not None
        at = match.end() + int(match[1] or 0)
        if match[1]:
            found.append(name[match.end() : at])
    return "::".join(dict.fromkeys(found)) or name


def short(name: str) -> str:
    """Return a name without the arguments of functions and of templates."""
    kept = name.replace("(anonymous namespace)", "{anonymous}").replace("operator()", "operator{}")
    depth = 0
    found: list[str] = []
    for at, letter in enumerate(kept):
        is_arrow = letter == ">" and kept[at - 1 : at] == "-"
        if letter in "<(":
            depth += 1
        elif letter in ">)" and not is_arrow:
            depth = max(depth - 1, 0)
        elif not depth:
            found.append(letter)
    text = "".join(found).replace("{}", "()").removesuffix(" const").partition(" [clone")[0]
    if "operator" not in text:  # a template's begins with the type that it returns
        text = text.rpartition(" ")[2]
    return text.partition(".")[0][:_LONGEST]  # what the compiler adds to copies
