"""Find why py-spy reads nothing of a process.

The reason is looked for in the process itself, and given only if it was seen there.

Each check knows one limit of py-spy, and how a process can meet it. If a process meets none, no
reason is known: then only py-spy's own words can be passed on.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from profd.daemon import elf, processes
from profd.daemon.interpreter.frames import Interpreter, open_interpreter
from profd.daemon.interpreter.memory import FreeThreaded, Unreadable, mapped_files
from profd.daemon.paths import mount_of

_MOST_FRAMES, _ENDLESS = 4_096, 1 << 18
"""The most frames of a thread: if one has more, py-spy gives up the whole process.

The second constant is no stack any more, but one that was read torn.
"""
_OF_CODE = re.compile(r"(?m)^([0-9a-f]+)-[0-9a-f]+ r-xp ([0-9a-f]+) \S+ \S+ +(/.*)$")
_LIBPYTHON = re.compile(r"/libpython\d\.\d\d?[mdut]?\.so")
_NO_TEXT = "\ufffd"


class Reason(msgspec.Struct, frozen=True):
    """Why nothing is read, as a clause about the process, and what helps.

    A reason that is not ``lasting`` passes by itself.

    If it ``leaves_some``, other frames of the same stacks are read.
    """

    what: str
    remedy: str
    lasting: bool = True
    leaves_some: bool = False


RUNS_NOTHING = Reason(
    "no thread of it runs Python code now", "it is read once one does", lasting=False
)


def why_unread(pid: int) -> Reason | None:
    """Return why py-spy reads nothing of a process, as far as the process shows it.

    Returns None if it shows nothing.
    """
    found = _of_files(pid) or _of_program(pid)
    if found is not None:
        return found
    try:
        python = open_interpreter(pid)
    except FreeThreaded:
        return Reason(
            "it runs a free-threaded Python, which py-spy cannot read",
            "run the script with the build that has the GIL; austin reads 3.13t and 3.14t",
        )
    except Unreadable:
        return None
    with contextlib.closing(python.memory), contextlib.suppress(Unreadable):
        return next(_of_interpreter(python), None)
    return None


def _of_interpreter(python: Interpreter) -> Iterator[Reason]:
    """Yield why py-spy cannot read the threads of an interpreter.

    Raises Unreadable if they move meanwhile.
    """
    # Thousands of threads wait in the same functions, so each is looked at once.
    stacks = [[at for _, at in python.frames(one, _ENDLESS)] for one in python.threads()]
    if _MOST_FRAMES < (deepest := max(map(len, stacks), default=0)) < _ENDLESS:
        yield Reason(
            f"a thread of it is {deepest:,} calls deep, and py-spy reads a process only up to "
            f"{_MOST_FRAMES:,}",
            "it is read again once that thread returns",
            lasting=False,
        )
    if not python.is_newest():
        yield Reason(
            "it has more than one interpreter, and py-spy reads the threads of the newest alone",
            "do without subinterpreters, or end them before the training begins",
        )
    codes = python.codes(set[int]().union(*stacks))
    odd = next((code for code in codes if _NO_TEXT in code.file + code.name), None)
    if odd is not None:
        yield Reason(
            f"the name of its file {odd.file} is not UTF-8, and py-spy leaves out the frames of "
            "such files",
            "rename that folder or file, and start it again",
            leaves_some=True,
        )
    if not codes:
        yield RUNS_NOTHING


def _of_files(pid: int) -> Reason | None:
    """Return what keeps py-spy from opening the files whose symbols it reads."""
    root = processes.PROC / str(processes.shown_as(pid))
    libraries = (path for _, path in mapped_files(processes.maps(pid)) if _LIBPYTHON.search(path))
    for file, path in (
        (root / "exe", processes.link(pid, "exe")),
        *((root / f"root{one}", one) for one in libraries),
    ):
        try:
            os.close(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except PermissionError as error:
            if not path:  # profd may not look into the process itself
                return None
            what = f"py-spy cannot open its file {path} ({error.strerror}), on {_file_system(path)}"
            return Reason(
                what, "run profd as a user whom that file system lets in, that of the process"
            )
        except OSError:
            continue
    return None


def _file_system(path: str) -> str:
    """Return the type and the mount point of the file system that holds a path."""
    at, kind, _ = mount_of(Path(path), processes.read_text(f"{processes.PROC}/self/mounts"))
    return f"the {kind} file system at {at}" if kind else "an unknown file system"


def _of_program(pid: int) -> Reason | None:
    """Return why py-spy does not find the interpreter, from what the process has mapped."""
    maps, program = processes.maps(pid), processes.link(pid, "exe")
    if not program or _LIBPYTHON.search(maps):
        return None
    root = processes.PROC / str(processes.shown_as(pid))
    if elf.python_in(str(root / "exe")) is None:
        return _of_library(maps, root)
    return _of_second_mapping(maps, program, root)


def _of_library(maps: str, root: Path) -> Reason | None:
    """Return the reason that the interpreter is in a library that py-spy does not look into."""
    libraries = dict.fromkeys(path for *_, path in _OF_CODE.findall(maps))
    held = (path for path in libraries if elf.python_in(f"{root}/root{path}") is not None)
    if (path := next(held, None)) is None:
        return None
    what = (
        f"its Python is in {path}, and py-spy looks for one in the program and in libpython3.*.so"
    )
    return Reason(what, "give that library the name that Python gives it")


def _of_second_mapping(maps: str, program: str, root: Path) -> Reason | None:
    """Return the reason that py-spy is wrong about where the program begins.

    py-spy takes that from the first part with code.
    """
    parts = (found for found in _OF_CODE.findall(maps) if found[-1] == program)
    begins = [int(start, 16) - int(offset, 16) for start, offset, _ in parts]
    starts = [start for start, path in mapped_files(maps) if path == program]
    if not begins or not starts or begins[0] in starts or not _is_movable(root / "exe"):
        return None
    what = "a part of its program is mapped a second time below the first, as libffi does for calls"
    what += " from C, and py-spy takes that for where the program begins"
    return Reason(what, "run it with a Python that has libffi or libpython as a library of its own")


def _is_movable(file: Path) -> bool:
    with contextlib.suppress(OSError), file.open("rb") as opened:
        # ET_DYN: addresses are relative to the load address.
        return int.from_bytes(opened.read(18)[16:], "little") == 3
    return False
