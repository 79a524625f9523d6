"""Prints the offsets of a CPython, from its headers, beside those of
``daemon/interpreter/offsets.py``.

    python benchmarks/run.py interpreteroffsets [-I FOLDER]... VERSION

VERSION is ``3.12``; the folders have ``Python.h`` and ``internal/`` of it, those of this Python
unless given. Needs a C compiler. Exits with 1 where a number differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from profd.daemon.interpreter import garbage, offsets

SOURCE = Path(__file__).with_suffix(".c")


def headers() -> str:
    """Return the folder of this Python's headers."""
    return sysconfig.get_path("include")


def printed(folders: Sequence[str]) -> dict[str, int]:
    """Return the offsets that headers have.

    Raises CalledProcessError where they cannot be compiled.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "offsets"
        include = [f"-I{one}" for given in folders for one in (given, f"{given}/internal")]
        subprocess.run(
            ["cc", *include, str(SOURCE), "-o", str(program)], check=True, capture_output=True
        )
        said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in map(str.split, said.splitlines())}


def known(version: tuple[int, int], name: str) -> tuple[int, ...]:
    """Return the offset that the table has, or several by the build; none if it lacks the name."""
    tables = offsets, garbage, offsets.BY_VERSION[version]
    value = next((getattr(one, name) for one in tables if hasattr(one, name)), None)
    return () if value is None else value if isinstance(value, tuple) else (value,)


def main() -> int:
    """Print a table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-I", dest="folders", action="append", metavar="FOLDER")
    parser.add_argument(
        "version", nargs="?", default=f"{sys.version_info.major}.{sys.version_info.minor}"
    )
    asked = parser.parse_args()
    major, minor = map(int, asked.version.split("."))
    differ = 0
    for name, value in printed(asked.folders or [headers()]).items():
        ours = known((major, minor), name)
        differs = bool(ours) and value not in ours
        differ += differs
        said = " or ".join(map(str, ours))
        print(f"{name:18} {value:>6} {said:>6}{'  DIFFERS' if differs else ''}")
    return min(differ, 1)
