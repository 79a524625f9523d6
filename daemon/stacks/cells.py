"""The cells of notebooks: their source and numbers.

They come from the history that IPython keeps of what it has run.

A kernel compiles a cell under a name that stands for no file: ``/tmp/ipykernel_PID/HASH.py`` by the
cell's text (ipykernel, compiler.py), in a terminal ``<ipython-input-NUMBER-HASH>`` (IPython,
core/compilerop.py). IPython writes a cell into its history before it runs it (core/history.py,
store_inputs), so the text is found by its hash.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator

import msgspec

from profd.daemon import processes
from profd.daemon.userfiles import UserFiles

_OF_KERNEL = re.compile(r"/ipykernel_\d+/(\d{1,10})\.py$")
_OF_TERMINAL = re.compile(r"<ipython-input-(\d{1,9})-([0-9a-f]+)>$")
_HISTORY = "profile_default/history.sqlite"
_NEWEST = "SELECT line, source, source_raw FROM history ORDER BY session DESC, line DESC LIMIT 300"
_SEED, _MULTIPLIER, _WORD = 0xC70F6907, 0x5BD1E995, 0xFFFFFFFF


class Cell(msgspec.Struct, frozen=True):
    """A cell of a notebook; ``number`` is its count of execution, ``text`` what Python ran of it.

    The text is empty if the history lacks the cell.
    """

    number: int
    text: str = ""


class Cells:
    """The cells that a user's kernels have run; ``pid`` is one of the user's processes.

    Only of our own user: root does not open a data base that another user made.
    """

    def __init__(self, files: UserFiles, pid: int) -> None:
        found = processes.environment(pid, frozenset({"HOME", "IPYTHONDIR"}))
        self._history = (
            f"{found.get('IPYTHONDIR') or found.get('HOME', '') + '/.ipython'}/{_HISTORY}"
        )
        self._files = files if processes.owner_uid(pid) == os.geteuid() else None
        self._known: dict[str, Cell | None] = {}

    def cell(self, file: str) -> Cell | None:
        """Return the cell that a frame's file stands for.

        None where it is no cell, or its number is not known.
        """
        of_kernel, of_terminal = _OF_KERNEL.search(file), _OF_TERMINAL.match(file)
        if not (of_kernel or of_terminal):
            return None
        if file not in self._known:
            number = int(of_terminal[1]) if of_terminal else None
            rows = (row for row in self._rows() if _has(of_kernel, of_terminal, *row[1:]))
            # IPython drops the empty lines that a cell begins with, and puts calls for its
            # commands.
            found = (Cell(line, source) for line, source, _ in rows)
            self._known[file] = next(found, None if number is None else Cell(number))
        return self._known[file]

    def _rows(self) -> Iterator[tuple[int, str, str]]:
        descriptor = self._files.open(self._history) if self._files else None
        if descriptor is None:
            return
        try:
            # Immutable: no lock is taken that a kernel could wait for. A row in the making is not
            # seen.
            where = f"file:/proc/self/fd/{descriptor}?mode=ro&immutable=1"
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(where, uri=True)) as history,
            ):
                yield from history.execute(_NEWEST)
        finally:
            os.close(descriptor)


def _has(
    of_kernel: re.Match[str] | None, of_terminal: re.Match[str] | None, source: str, raw: str
) -> bool:
    """Say whether a frame's file was named after a cell.

    The history has it without the last ends of lines.
    """
    if of_kernel:
        return int(of_kernel[1]) in (murmur(raw.encode()), murmur(f"{raw}\n".encode()))
    import hashlib  # two megabytes with OpenSSL, for terminals alone

    digests = (
        hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        for text in (source, f"{source}\n")
    )
    return of_terminal is not None and any(digest.startswith(of_terminal[2]) for digest in digests)


def murmur(data: bytes) -> int:
    """Return the hash by which ipykernel names a cell: MurmurHash2 of 32 bits, with its seed."""
    hashed, whole = _SEED ^ len(data), len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        hashed = (hashed * _MULTIPLIER & _WORD) ^ word
    if len(data) > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _WORD
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _WORD
    return hashed ^ hashed >> 15
