"""The command line of py-spy: its commands and options, and what it says of one that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

_USAGE = """\
Sampling profiler for Python programs

Usage: py-spy <COMMAND>

Commands:
  record  Records stack trace information to a flamegraph, speedscope or raw file
  top     Displays a top like view of functions consuming CPU
  dump    Dumps stack traces for a target program to stdout
  help    Print this message or the help of the given subcommand(s)

Options:
  -h, --help     Print help
  -V, --version  Print version"""
_FORMATS = ("flamegraph", "raw", "speedscope", "chrometrace")
_INVALID_DIGIT = "invalid digit found in string"


class UsageError(Exception):
    """py-spy does not understand; the message is what it says on stderr, ``code`` what it ends with."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class _Option(NamedTuple):
    name: str
    short: str
    has_value: bool = False


_SHARED = (
    _Option("pid", "p", True),
    _Option("full-filenames", ""),
    _Option("subprocesses", "s"),
    _Option("native", "n"),
    _Option("nonblocking", ""),
)
_OPTIONS = {
    "record": (
        *_SHARED,
        _Option("output", "o", True),
        _Option("format", "f", True),
        _Option("duration", "d", True),
        _Option("rate", "r", True),
        _Option("function", "F"),
        _Option("nolineno", ""),
        _Option("threads", "t"),
        _Option("gil", "g"),
        _Option("idle", "i"),
    ),
    "dump": (*_SHARED, _Option("core", "c", True), _Option("locals", "l"), _Option("json", "j")),
}
_NOT_PLAYED = frozenset({"native", "core", "gil", "function", "nolineno", "full-filenames"})
"""Options of py-spy that the stand-in knows and has no part for."""


def parse(words: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the command and its options by name; the command ``version`` for ``--version``. Raises UsageError."""
    if not words:
        raise UsageError(_USAGE)
    if words[0] in ("--version", "-V"):
        return "version", {}
    commands = [name for name in _OPTIONS if name.startswith(words[0])]
    if len(commands) != 1:
        raise _wrong(f"unrecognized subcommand '{words[0]}'\n\nUsage: py-spy <COMMAND>")
    command = commands[0]
    given = _read(command, words[1:])
    if "pid" not in given:
        raise _wrong("the following required arguments were not provided:\n  --pid <pid>")
    played = {name: True if value is None else value for name, value in given.items()}
    for name in _NOT_PLAYED & played.keys():
        raise UsageError(f"the stand-in plays no --{name}", 70)
    defaults: dict[str, Any] = {option.name: False for option in _OPTIONS[command]}
    return command, {**defaults, **played, **_values(command, given)}


def _read(command: str, words: list[str]) -> dict[str, str | None]:
    """Return the options that are given, with their values as text."""
    given: dict[str, str | None] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        found = [option for option in _OPTIONS[command] if name in (f"--{option.name}", f"-{option.short}")]
        if not found:
            tip = f"\n\n  tip: to pass '{name}' as a value, use '-- {name}'" if name.startswith("--") else ""
            raise _wrong(f"unexpected argument '{name}' found{tip}")
        option = found[0]
        given[option.name] = (value if equals else _next(rest, option)) if option.has_value else None
    return given


def _next(rest: Iterator[str], option: _Option) -> str:
    for word in rest:
        return word
    raise _wrong(f"a value is required for '--{option.name} <{option.name}>' but none was supplied")


def _values(command: str, given: dict[str, str | None]) -> dict[str, Any]:
    """Return the values of the options that are no text."""
    pid = str(given["pid"])
    values: dict[str, Any] = {"pid": _panic_unless_number(pid, "pid", 16 if pid.lower().startswith("0x") else 10)}
    if command == "record":
        rate = given.get("rate") or "100"
        if not rate.isdigit():
            raise _wrong(f"invalid value '{rate}' for '--rate <rate>': {_INVALID_DIGIT}")
        form = (given.get("format") or "flamegraph").lower()
        if form not in _FORMATS:
            formats = ", ".join(_FORMATS)
            raise _wrong(f"invalid value '{form}' for '--format <format>'\n  [possible values: {formats}]")
        if form == "flamegraph" or "output" not in given:
            raise UsageError("the stand-in draws no flame graphs, and wants --output", 70)
        length = given.get("duration") or "unlimited"
        seconds = None if length == "unlimited" else _panic_unless_number(length, "duration", 10)
        values |= {"rate": int(rate), "format": form, "duration": seconds}
    elif "json" not in given:
        raise UsageError("the stand-in dumps nothing but --json", 70)
    return values


def _panic_unless_number(text: str, what: str, base: int) -> int:
    """Return a number; py-spy panics where there is none."""
    try:
        return int(text, base)
    except ValueError as error:
        why = f"invalid {what}: ParseIntError {{ kind: InvalidDigit }}"
        raise UsageError(f"\nthread 'main' panicked at src/config.rs:\n{why}", 101) from error


def _wrong(message: str) -> UsageError:
    return UsageError(f"error: {message}\n\nFor more information, try '--help'.")
