"""Patterns of frames, and their tables, which say what a call is by function, module and line.

profd has such tables, and users add to them with a file of the same name in profd's folder of
configuration files.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from profd.daemon.errors import UsageError
from profd.daemon.frameworks.frames import Functions, Meaning, function_test, means
from profd.daemon.paths import own_file
from profd.daemon.store.rows import FrameRow


class FramePattern(Functions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a frame must be: every condition that is given must hold.

    ``phases.toml`` explains each.
    """

    means: tuple[Meaning, ...] = ()
    source: str = ""
    library: bool | None = None


Pattern = TypeVar("Pattern", bound=FramePattern)


def tables(built_in: Path) -> list[Path]:
    """Return the tables of this name in the order in which they are tried: the user's first."""
    own = own_file(built_in.name)
    return [own, built_in] if own.is_file() else [built_in]


def read_patterns(file: Path, key: str, kind: type[Pattern], hint: str) -> tuple[Pattern, ...]:
    """Read a table of [[key]]; raises UsageError that names what is wrong with it."""
    try:
        data = file.read_bytes()
    except OSError as error:
        what, remedy = f"{file} cannot be read", "make it readable, or remove it"
        raise UsageError.of_system(what, error, remedy) from error
    return _patterns_in(data, file, key, kind, hint)


# Each reader of a run asks for the tables, and to decode them takes longer than a short run does.
@functools.lru_cache(8)
def _patterns_in(
    data: bytes, file: Path, key: str, kind: type[Pattern], hint: str
) -> tuple[Pattern, ...]:
    try:
        form: type[dict[str, tuple[Pattern, ...]]] = dict[str, tuple[kind, ...]]  # type: ignore[valid-type]
        tables = msgspec.toml.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is no table of [[{key}]] ({error})", hint) from error
    patterns = tables.pop(key, ())
    if tables:
        raise UsageError(f"{file} has {min(tables)!r} where it may have [[{key}]] only", hint)
    for number, pattern in enumerate(patterns, 1):
        where = f"{file}, {key} {number}"
        if not (pattern.means or pattern.function or pattern.module or pattern.source):
            raise UsageError(
                f"{where}: it says nothing of a frame", "give it a function, a module or a source"
            )
        try:
            re.compile(pattern.source)
        except re.error as error:
            what = f"{where}: {pattern.source!r} is no regular expression ({error})"
            raise UsageError(what, "mend its source") from error
    return patterns


def frame_test(pattern: FramePattern) -> Callable[[FrameRow], bool]:
    """Return the test whether a frame matches a pattern."""
    is_function = function_test(pattern)
    source = _line_test(pattern.source)
    return lambda frame: (
        (pattern.library is None or frame.is_library == pattern.library)
        and is_function(frame.function, frame.module_path)
        and (not pattern.means or means(frame, *pattern.means))
        and (not pattern.source or source(frame.text))
    )


_SEMICOLON = re.compile(r""";(?=(?:[^'"]|'[^']*'|"[^"]*")*$)""")
"""A semicolon outside of quotation marks."""


def _line_test(pattern: str) -> Callable[[str], bool]:
    """Return a function that searches a line.

    It searches each statement of a line, because nothing shows which of them runs.
    """
    search = re.compile(pattern).search

    def test(line: str) -> bool:
        if ";" not in line:
            return search(line) is not None
        return all(map(search, filter(None, map(str.strip, _SEMICOLON.split(line)))))

    return test
