"""Find the source and number of notebook cells in the history that IPython keeps.

A kernel compiles a cell under a name that stands for no file: ``/tmp/ipykernel_PID/HASH.py``, with
a hash of the cell's text (ipykernel, compiler.py), or in a terminal ``<ipython-input-NUMBER-HASH>``
(IPython, core/compilerop.py). IPython writes a cell into its history before it runs it
(core/history.py, store_inputs), so the text can be found by its hash.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from profd.daemon import processes
from profd.daemon.store.database import BoundedConnection
from profd.daemon.userfiles import UserFiles

_OF_KERNEL = re.compile(r"/ipykernel_\d+/(\d{1,10})\.py$")
_OF_TERMINAL = re.compile(r"<ipython-input-(\d{1,9})-([0-9a-f]+)>$")
_HISTORY = "profile_default/history.sqlite"
_NEWEST = "SELECT line, source, source_raw FROM history ORDER BY session DESC, line DESC LIMIT 300"
_SEED, _MULTIPLIER, _WORD = 0xC70F6907, 0x5BD1E995, 0xFFFFFFFF


class Cell(msgspec.Struct, frozen=True):
    """A cell of a notebook: ``number`` is its execution count, ``text`` what Python ran of it.

    The text is empty if the history lacks the cell.
    """

    number: int
    text: str = ""


class Cells:
    """The cells that a user's kernels have run; ``pid`` is one of the user's processes.

    It reads the history of profd's own user only: root must not open a database that another user
    made.
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

        Returns None if the file is no cell, or its number is not known.
        """
        of_kernel, of_terminal = _OF_KERNEL.search(file), _OF_TERMINAL.match(file)
        if not (of_kernel or of_terminal):
            return None
        if file not in self._known:
            number = int(of_terminal[1]) if of_terminal else None
            rows = (row for row in self._rows() if _has(of_kernel, of_terminal, *row[1:]))
            # IPython drops the empty lines at the start of a cell, and replaces its commands by
            # calls.
            found = (Cell(line, source) for line, source, _ in rows)
            self._known[file] = next(found, None if number is None else Cell(number))
        return self._known[file]

    def _rows(self) -> Iterator[tuple[int, str, str]]:
        descriptor = self._files.open(self._history) if self._files else None
        if descriptor is None:
            return
        try:
            # "immutable" takes no lock that a kernel could wait for. A row that is being written is
            # not seen.
            path = Path(f"/proc/self/fd/{descriptor}")
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(
                    sqlite3.connect(
                        f"file:{path}?mode=ro&immutable=1", uri=True, factory=BoundedConnection
                    )
                ) as history,
            ):
                history.bound(path)
                yield from history.execute(_NEWEST)
        finally:
            os.close(descriptor)


def _has(
    of_kernel: re.Match[str] | None, of_terminal: re.Match[str] | None, source: str, raw: str
) -> bool:
    """Return whether a frame's file was named after a cell.

    The history keeps the cell without its trailing newlines.
    """
    if of_kernel:
        return int(of_kernel[1]) in (murmur(raw.encode()), murmur(f"{raw}\n".encode()))
    import hashlib  # loads OpenSSL, two megabytes, which only terminals need

    digests = (
        hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        for text in (source, f"{source}\n")
    )
    return of_terminal is not None and any(digest.startswith(of_terminal[2]) for digest in digests)


def murmur(data: bytes) -> int:
    """Return the hash by which ipykernel names a cell: 32-bit MurmurHash2 with its seed."""
    hashed, whole = _SEED ^ len(data), len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        hashed = (hashed * _MULTIPLIER & _WORD) ^ word
    if len(data) > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _WORD
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _WORD
    return hashed ^ hashed >> 15
