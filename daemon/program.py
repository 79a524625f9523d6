"""How the programs of profd are started, and what this one was started with.

Every process of profd is an isolated Python, because settings for the script's Python are not meant
for it. The script gets all of its settings unchanged: its environment entry by entry, and the
ignored signals, which Python forgets.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_START = str(Path(__file__).parents[1] / "__main__.py")
# The shell script `profd` sets both: numbered variables with the entries of its own environment,
# and an option.
_ENTRY = b"PROFD_ENTRY_%d"
_IGNORED = "profd_ignored"
_kept: list[Any] = []  # for the life of this process: the C library has a pointer to it
_OF_THE_LOADER = (
    "LD_PRELOAD",
    "LD_AUDIT",
    "LD_DEBUG",
    "LD_DEBUG_OUTPUT",
    "LD_PROFILE",
    "LD_PROFILE_OUTPUT",
)


def words(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this profd as a program.

    ``profd`` is the command line.
    """
    return [sys.executable, "-I", _START, "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Return the environment for profd's own programs.

    It is ours, without the variables that load other code into each process. LD_LIBRARY_PATH stays:
    it may be the only way to find the libraries of Python, or those of the GPU driver.
    """
    return {name: value for name, value in os.environ.items() if name not in _OF_THE_LOADER}


def inherited_environment() -> list[bytes]:
    """Return the environment entries with which profd was started, byte for byte and in order."""
    try:
        found = Path("/proc/self/environ").read_bytes().split(b"\0")[:-1]
    except OSError:
        return [b"=".join(pair) for pair in os.environb.items()]
    variables = {name: value for name, _, value in (entry.partition(b"=") for entry in found)}
    numbered = itertools.takewhile(
        variables.__contains__, (_ENTRY % number for number in itertools.count())
    )
    return [variables[name] for name in numbered] or found


def hand_on_environment(variables: Mapping[str, str]) -> None:
    """Give this process the environment that profd was started with, and these variables.

    This process is about to become the script. ``os.exec*`` without an environment pass the entries
    on. A mapping could hold no entry without a name, and no name twice.
    """
    names = {os.fsencode(name) for name in variables}
    entries = [entry for entry in inherited_environment() if entry.partition(b"=")[0] not in names]
    entries += [os.fsencode(f"{name}={value}") for name, value in variables.items()]
    kept = _kept[:] = [(ctypes.c_char_p * (len(entries) + 1))(*entries, None)]
    ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ").value = ctypes.addressof(kept[0])


def take_over() -> None:
    """Give this process the environment and the name that it has for whoever started it."""
    if _ENTRY % 0 in os.environb:
        inherited = (entry.partition(b"=") for entry in inherited_environment())
        os.environb.clear()
        os.environb.update({name: value for name, sign, value in inherited if name and sign})
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("profd")  # the name by which `pkill` and `top` know it


def ignored_signals() -> frozenset[int] | None:
    """Return the numbers of the signals that were ignored when profd was started.

    None if that is unknown.
    """
    mask = sys._xoptions.get(_IGNORED)
    if not isinstance(mask, str) or not mask:
        return None
    bits = int(mask, 16)
    return frozenset(
        number for number in range(1, bits.bit_length() + 1) if bits >> (number - 1) & 1
    )
