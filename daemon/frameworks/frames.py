"""What a frame means: that it runs the backward pass, loads data, waits for other ranks, and so on.

The table ``frames.toml`` says it by function and module, and explains each meaning. All that tell
something from frames ask here, so that a framework is taught in one place.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from profd.daemon.store.records import Frame
from profd.daemon.store.rows import FrameRow

Meaning = Literal[
    "torch",
    "backward",
    "autograd",
    "engine",
    "optimizer step",
    "single-tensor update",
    "multi-tensor update",
    "sparse update",
    "averages weights",
    "in a pass",
    "module",
    "calls forward",
    "calls hooks",
    "no gradients",
    "fits",
    "generates",
    "evaluation",
    "inference",
    "named like an evaluation",
    "trainer",
    "anomaly detection",
    "jax",
    "numba",
    "collective",
    "one-sided",
    "waits for ranks",
    "of a rank",
    "makes groups",
    "joins all ranks",
    "around a call",
    "spawned",
    "worker loop",
    "idle worker",
    "loader",
    "starts workers",
    "stops workers",
    "draws indices",
    "collates",
    "no batch yet",
    "pins batches",
    "iterable dataset",
    "shares data out",
    "environment",
    "environments",
    "env runner",
    "asked",
    "waits for requests",
    "event loop",
    "idle loop",
    "notebook kernel",
    "queue",
    "child process",
    "lock",
    "joins a thread",
    "child begins",
    "gpu",
]
TABLE = Path(__file__).with_suffix(".toml")
_WILDCARD = re.compile(r"[*?\[]")


class Functions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Functions by name and module: every condition that is given must hold."""

    function: tuple[str, ...] = ()
    module: tuple[str, ...] = ()
    not_module: tuple[str, ...] = ()


class _Meant(Functions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Functions, and what all of them mean."""

    means: tuple[Meaning, ...]


class _FrameTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    frame: tuple[_Meant, ...]


def means(frame: Frame | FrameRow, *meanings: Meaning) -> bool:
    """Say whether a frame has one of these meanings."""
    return not _of_frame(frame).isdisjoint(meanings)


def function_means(function: str, path: str, *meanings: Meaning) -> bool:
    """Say whether a function of a file has one of these meanings.

    The path begins at the outermost package, or at the root of the file system.
    """
    return not _meanings(function, path).isdisjoint(meanings)


def any_means(frames: Iterable[Frame | FrameRow], *meanings: Meaning) -> bool:
    """Say whether a frame of a stack has one of these meanings."""
    return any(means(frame, *meanings) for frame in frames)


def all_meanings(frames: Iterable[Frame | FrameRow]) -> frozenset[Meaning]:
    """Return what the frames of a stack mean, for those who ask a stack again and again."""
    return frozenset[Meaning]().union(*map(_of_frame, frames))


def _of_frame(frame: Frame | FrameRow) -> frozenset[Meaning]:
    path = frame.module_path if isinstance(frame, FrameRow) else frame.file
    return _meanings(frame.function, path)


@functools.lru_cache(8_192)
def _meanings(function: str, path: str) -> frozenset[Meaning]:
    return frozenset(
        meaning for one, test in _tests() if test(function, path) for meaning in one.means
    )


@functools.cache
def _tests() -> list[tuple[_Meant, Callable[[str, str], bool]]]:
    return [(one, function_test(one)) for one in _table().frame]


@functools.cache
def _table() -> _FrameTable:
    return msgspec.toml.decode(TABLE.read_bytes(), type=_FrameTable)


def function_test(functions: Functions) -> Callable[[str, str], bool]:
    """Return the test of a function's name and of the path of its file.

    A pattern of paths is compiled once a name fits: a run has frames of few frameworks, and the
    patterns of all take 20 ms.
    """
    is_named, modules = _name_test(functions.function), functions.module or ("*",)
    return lambda function, path: bool(
        (not functions.function or is_named(function))
        and _paths(modules).match(path)
        and not _paths(functions.not_module).match(path)
    )


def _name_test(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """Return a function that compares a name with patterns."""
    # Up to Python 3.10 a frame has ``step``, later ones have ``Adam.step``. So a name without a dot
    # is compared with the end of a pattern with one.
    dotted = tuple(pattern for pattern in patterns if "." in pattern)
    whole, ends = _any_of(dotted), _any_of(tuple(filter(None, map(_end_of, dotted))))
    plain = _any_of(tuple(pattern for pattern in patterns if "." not in pattern))

    def test(name: str) -> object:
        qualified = whole if "." in name else ends
        return qualified(name) or plain(name.rpartition(".")[2])

    return test


def _end_of(pattern: str) -> str | None:
    """Return the function in a pattern of a class and a function; None if it says nothing alone.

    That is if it is ``*``, or if the class has a wildcard, as in ``*Loss.forward``.
    """
    owner, _, end = pattern.rpartition(".")
    return None if end == "*" or _WILDCARD.search(owner) else end


@functools.cache
def _paths(globs: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of paths from the outermost package, or from the root, down."""
    return re.compile(rf"(?:/(?:.*/)?)?(?:{_pattern_of(globs)})")


def _any_of(globs: tuple[str, ...]) -> Callable[[str], object]:
    if any(map(_WILDCARD.search, globs)):
        return re.compile(_pattern_of(globs)).match
    return frozenset(globs).__contains__


def _pattern_of(globs: tuple[str, ...]) -> str:
    return "|".join(map(fnmatch.translate, globs)) or "(?!)"  # which nothing meets
