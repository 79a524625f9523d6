"""Numbers as they are shown: with the bounds between which a rounded one lies."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode
from profd.daemon.store.reader import RunReader


class Number(NamedTuple):
    """A number: of what kind, of which function, process or GPU of the run, and between which bounds it lies."""

    kind: str
    of: str
    low: float
    high: float


Numbers = Iterator[Number]
NONE = ("", "-", "NaN")
"""What stands for a number that is not known."""
IDLE = ("idle share of a GPU in a window", "share in which a GPU of a window waited for the host")
IDLE_TEXT = r"GPU (\d+) was idle (<?\d+ %) from .*?: (<?\d+ %) as"
"""What a summary and the report say of the idle shares of each GPU."""
_SHOWN = re.compile(
    "([<~+-]*)\\s?([\\d,]+(?:\\.(\\d+))?)\\s*(%|[kMGT]?B|µs|us|ms|min|s|h|d|W|\N{MULTIPLICATION SIGN})?(/s|/min)?"
)
_UNITS = {
    "%": 0.01, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "us": 1e-6, "µs": 1e-6, "ms": 1e-3,
    "min": 60.0, "h": 3600.0, "d": 86_400.0,
}  # fmt: skip


def exact(kind: str, of: object, value: float) -> Number:
    """Return a number that is given with all its digits."""
    return Number(kind, str(of), value, value)


def read(kind: str, of: object, shown: str, scale: float = 1.0) -> Number:
    """Return the number at the beginning of a text, with its unit; a whole number without one is a count."""
    found = list(_SHOWN.finditer(shown))
    if len(found) > 1 and all(match[4] in ("d", "h", "min", "s") for match in found[:2]):
        (larger, _), (low, high) = map(_bounds, found[:2])
        larger += _bounds(found[0])[1]
        return Number(kind, str(of), larger / 2 + low, larger / 2 + high)
    low, high = _bounds(found[0])
    return Number(kind, str(of), low * scale, high * scale)


def clock(kind: str, of: object, shown: str, days: int = 0) -> Number:
    """Return a length of time that is shown as a clock: ``00:01:12``, ``0:12.0``."""
    *parts, seconds = shown.split(":")
    value = (
        days * 86_400
        + float(seconds)
        + sum(int(part) * 60**at for at, part in enumerate(reversed(parts), 1))
    )
    half = 10.0 ** -len(seconds.partition(".")[2]) / 2
    return Number(kind, str(of), value - half, value + half)


def function(name: str, place: str) -> str:
    """Return what a function is called in all texts, however much of its path they show."""
    return f"{name} in {re.sub(r':[0-9]+$', '', place).rpartition('/')[2]}"


def command(*words: str) -> str:
    """Return what a command prints."""
    said = io.BytesIO()
    with contextlib.redirect_stdout(
        io.TextIOWrapper(said, encoding="utf-8", write_through=True)
    ) as output:
        code = run_command_line(list(words))
        output.flush()
    assert code == ExitCode.OK or (code == ExitCode.NO_SAMPLES and not _has_samples(words))
    return said.getvalue().decode()


def _has_samples(words: Iterable[str]) -> bool:
    """Say whether a run file among the words of a command has samples."""
    for file in (Path(word) for word in words if word.endswith(".profd")):
        with RunReader(file) as reader:
            if reader.recorded().whole:
                return True
    return False


def _bounds(match: re.Match[str]) -> tuple[float, float]:
    sign, digits, decimals, unit, per = match.groups()
    factor = _UNITS.get(unit, 1.0) / (60.0 if per == "/min" else 1.0)
    value = float(digits.replace(",", "")) * factor
    if "<" in sign:
        return 0.0, value
    half = factor * 10.0 ** -len(decimals or "") / 2 if unit or per or decimals else 0.0
    # Nothing but all is shown as 100 %: what is just below is shown as the number below.
    is_last = unit == "%" and re.fullmatch(r"99(\.9+)?", digits)
    return value - half, factor * 100 if is_last else value + half
