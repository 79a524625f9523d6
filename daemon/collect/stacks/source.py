"""What stands behind a frame: the path below its outermost package, whether it is library code, the text of its line.

Reads source files, through the target's own root where that is another one (a container).
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from profd.daemon.store.records import Frame, FrameDescription

_LIBRARY_FOLDERS = ("site-packages", "dist-packages")
# The standard library, of whichever interpreter: …/lib/python3.11/threading.py, …/lib64/python3.6/…
_STANDARD_LIBRARY = re.compile(r"/lib(64)?/python3\.\d+[a-z]?/")
_LINE_END = re.compile(r"\r\n?|\n")
_USERS_OWN_CODE = ("<string>", "<stdin>")
# Whole files are large and asked for a few of their lines: few are held, the lines that were asked for long.
_FILES_HELD = 4
_LINES_HELD = 2048
_FILE_LIMIT_BYTES = 4 << 20
_LINE_LIMIT = 200


class SourceTree:
    """The source files that a target sees."""

    def __init__(self, root: Path = Path("/"), own: Path | None = None) -> None:
        """Look below ``root``: ``/proc/PID/root`` shows what a process in a container sees.

        ``own`` is the folder of the script: what lies there is the user's, wherever the folder is.
        """
        self._root = root
        self._own = f"{own}/" if own else None
        self._bytes = functools.lru_cache(_FILES_HELD)(self._read)
        self.line = functools.lru_cache(_LINES_HELD)(self._line)
        """``line(file, line)``: the text of a line without the space around it; None where it cannot be read."""
        self._has_init = functools.lru_cache(1024)(self._read_has_init)

    def describe(self, frame: Frame) -> FrameDescription:
        """Return what is kept of a frame beside its identity."""
        return FrameDescription(
            module_path=self.module_path(frame.file),
            is_library=is_library(self._below_own(frame.file)),
            source=self.line(frame.file, frame.line),
        )

    def lines(self, file: str) -> list[str]:
        """Return the lines of a file as Python counts them; none where it cannot be read."""
        return _LINE_END.split(self._bytes(file).decode(errors="replace"))

    def _line(self, file: str, line: int) -> str | None:
        # Of bytes, since in a text a form feed would end a line, as it does not in Python.
        lines = self._bytes(file).splitlines()
        return lines[line - 1].decode(errors="replace").strip()[:_LINE_LIMIT] if 0 < line <= len(lines) else None

    def module_path(self, file: str) -> str:
        """Return the path from the outermost package down, as py-spy shortens it: ``torch/nn/modules/module.py``."""
        path = Path(file)
        folder = path.parent
        while folder != folder.parent and self._has_init(folder):
            folder = folder.parent
        return str(path.relative_to(folder)) if path.is_absolute() else file

    def _below_own(self, file: str) -> str:
        return file.removeprefix(self._own) if self._own else file

    def _below_root(self, path: Path) -> Path:
        return self._root / path.relative_to(path.anchor) if path.is_absolute() else path

    def _read_has_init(self, folder: Path) -> bool:
        try:
            return (self._below_root(folder) / "__init__.py").is_file()
        except OSError:  # not ours to enter, or a name that no file system takes: the target says what it likes
            return False

    def _read(self, file: str) -> bytes:
        path = self._below_root(Path(file))
        try:
            if not path.is_absolute() or not path.is_file() or path.stat().st_size > _FILE_LIMIT_BYTES:
                return b""
            return path.read_bytes()
        except OSError:
            return b""


def is_library(file: str) -> bool:
    """Say whether a file belongs to an installed package, the standard library, or the interpreter itself."""
    if file.startswith("<"):
        return file not in _USERS_OWN_CODE and not file.startswith("<ipython")
    parts = Path(file).parts
    return any(folder in parts for folder in _LIBRARY_FOLDERS) or bool(_STANDARD_LIBRARY.search(file))


def source_root(pid: int) -> Path:
    """Return the folder that shows the file system as a process sees it: ``/`` where it sees what we see."""
    theirs, ours = Path(f"/proc/{pid}/ns/mnt"), Path("/proc/self/ns/mnt")
    try:
        return Path("/") if theirs.readlink() == ours.readlink() else Path(f"/proc/{pid}/root")
    except OSError:
        return Path("/")
