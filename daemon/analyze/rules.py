"""The ordered rules that tell a phase from a stack: a table of data, read from TOML, the user's own rules first.

Knows frames and patterns. What a phase is, and how the rules are run over stacks, is the matter of ``phases``.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import platformdirs

from profd.daemon.errors import UsageError
from profd.daemon.store.rows import FrameRow

BUILT_IN = Path(__file__).with_name("phases.toml")
_NOTHING = re.compile(r"(?!)")
_WILDCARD = re.compile(r"[*?\[]")
_GLOBS_HELD = 1024


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A phase, and what one frame of a stack must be for the stack to belong to it.

    Every condition that is given must hold, of the same frame; ``phases.toml`` explains each.
    """

    phase: str
    function: tuple[str, ...] = ()
    module: tuple[str, ...] = ()
    source: str = ""
    library: bool | None = None
    leaf: bool = False
    innermost: bool = False


class _RuleFile(msgspec.Struct, forbid_unknown_fields=True):
    rule: tuple[Rule, ...] = ()


FrameTest = Callable[[FrameRow], bool]


def user_rules_file() -> Path:
    """Return where the user's own rules are looked for; the file need not exist."""
    home = os.environ.get("PROFD_HOME")
    return (Path(home) if home else Path(platformdirs.user_config_dir("profd"))) / "phases.toml"


def load_rules(phases: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules in the order in which they are tried: the user's, then the built-in ones.

    ``phases`` are the names that a rule may give. Raises UsageError where the user's file is wrong.
    """
    known = frozenset(phases)
    own = user_rules_file()
    return (*(read_rules(own, known) if own.is_file() else ()), *read_rules(BUILT_IN, known))


def read_rules(file: Path, phases: frozenset[str]) -> tuple[Rule, ...]:
    """Read a table of rules; raises UsageError that names what is wrong with it."""
    try:
        rules = msgspec.toml.decode(file.read_bytes(), type=_RuleFile).rule
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror})", "make it readable, or remove it") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{file} is no table of phase rules ({error})", "docs/phases.md shows what it holds"
        ) from error
    for number, rule in enumerate(rules, 1):
        _check(rule, f"{file}, rule {number}", phases)
    return rules


def _check(rule: Rule, where: str, phases: frozenset[str]) -> None:
    """Raise UsageError where a rule can never work."""
    if rule.phase not in phases:
        raise UsageError(f"{where}: there is no phase {rule.phase!r}", f"use one of: {'; '.join(sorted(phases))}")
    if not (rule.function or rule.module or rule.source):
        raise UsageError(f"{where}: it says nothing of a frame", "give it a function, a module or a source")
    try:
        re.compile(rule.source)
    except re.error as error:
        raise UsageError(f"{where}: {rule.source!r} is no regular expression ({error})", "mend its source") from error


def frame_test(rule: Rule) -> FrameTest:
    """Return a function that says whether a frame meets the conditions of a rule, ``leaf`` and ``innermost`` aside."""
    function = _name_test(rule.function)
    module = _any_of(rule.module)
    source = re.compile(rule.source)

    def test(frame: FrameRow) -> bool:
        return (
            (rule.library is None or frame.is_library == rule.library)
            and (not rule.module or module.match(frame.module_path) is not None)
            and (not rule.function or function(frame.function))
            and (not rule.source or source.search(frame.source or "") is not None)
        )

    return test


def _name_test(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that compares a name with patterns.

    Up to Python 3.10 a frame tells ``step`` where later ones tell ``Adam.step``. So a name without a dot is compared
    with the end of a pattern with one. Not so where that end is ``*``, which would meet every function there is, nor
    where the class has a wildcard: of ``*Loss.forward`` the end alone says nothing.
    """
    dotted = tuple(pattern for pattern in patterns if "." in pattern)
    split = [pattern.rpartition(".") for pattern in dotted]
    whole = _any_of(dotted)
    ends = _any_of(tuple(end for owner, _, end in split if end != "*" and not _WILDCARD.search(owner)))
    plain = _any_of(tuple(pattern for pattern in patterns if "." not in pattern))

    def test(name: str) -> bool:
        qualified = whole if "." in name else ends
        return bool(qualified.match(name) or plain.match(name.rpartition(".")[2]))

    return test


@functools.lru_cache(_GLOBS_HELD)
def _any_of(globs: tuple[str, ...]) -> re.Pattern[str]:
    """Return an expression that the whole of a text meets where any of the globs does; none of them: it meets none."""
    return re.compile("|".join(map(fnmatch.translate, globs))) if globs else _NOTHING
