"""What stands behind a frame: the path below its outermost package, whether it is library code, the text of its line.

Reads source files as the target's user sees them; see ``userfiles``.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from profd.daemon.store.records import Frame, FrameDescription
from profd.daemon.userfiles import Unanswered, UserFiles

_LIBRARY_FOLDERS = ("site-packages", "dist-packages")
# The standard library, of whichever interpreter: …/lib/python3.11/threading.py, …/lib64/python3.6/…
_STANDARD_LIBRARY = re.compile(r"/lib(64)?/python3\.\d+[a-z]?/")
_LINE_END = re.compile(r"\r\n?|\n")
_USERS_OWN_CODE = ("<string>", "<stdin>")
# Whole files are large and asked for a few of their lines: few are held, the lines that were asked for long.
_FILES_HELD = 4
_LINES_HELD = 2048
_LINE_LIMIT = 200


class SourceTree:
    """The source files that a target sees."""

    def __init__(self, files: UserFiles | None = None, own: Path | None = None) -> None:
        """Read ``files``, those that we see ourselves where none are given.

        ``own`` is the folder of the script: what lies there is the user's, wherever the folder is.
        """
        self._files = files or UserFiles()
        self._own = f"{own}/" if own else None
        self._bytes = functools.lru_cache(_FILES_HELD)(self._read)
        self._kept_line = functools.lru_cache(_LINES_HELD)(self._line)
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
        try:
            return _LINE_END.split(self._bytes(file).decode(errors="replace"))
        except Unanswered:  # not kept: the file is asked for again
            return [""]

    def line(self, file: str, line: int) -> str | None:
        """Return the text of a line without the space around it; None where it cannot be read."""
        try:
            return self._kept_line(file, line)
        except Unanswered:
            return None

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

    def _read_has_init(self, folder: Path) -> bool:
        return self._files.is_file(str(folder / "__init__.py"))

    def _read(self, file: str) -> bytes:
        return self._files.read(file) if Path(file).is_absolute() else b""


def is_library(file: str) -> bool:
    """Say whether a file belongs to an installed package, the standard library, or the interpreter itself."""
    if file.startswith("<"):
        return file not in _USERS_OWN_CODE and not file.startswith("<ipython")
    parts = Path(file).parts
    return any(folder in parts for folder in _LIBRARY_FOLDERS) or bool(_STANDARD_LIBRARY.search(file))
