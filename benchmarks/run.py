"""Runs a measurement, or lists all.

    python benchmarks/run.py                     # their names, and what each measures
    python benchmarks/run.py NAME [OPTION ...]   # NAME --help has its options
    python benchmarks/run.py --print-only NAME   # docs/measurements.md stays as it is

A measurement is a module of ``cost``, ``truth``, ``findings``, ``trust``, ``gpu`` or ``fleet`` with
a function ``main``, which returns an exit code or nothing. It writes its sections by
``common/measurements.py``.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

from common import measurements

HERE = Path(__file__).parent
FOLDERS = ("cost", "truth", "findings", "trust", "gpu", "fleet")
TESTS = HERE.parent / "tests"
"""What measures may use what tests make: sessions, simulated drivers, made-up runs."""


def found() -> dict[str, Path]:
    """Return the files of all measurements by name."""
    paths = [path for folder in FOLDERS for path in sorted((HERE / folder).glob("*.py"))]
    texts = {path: path.read_text() for path in paths}
    # What is a script is run by a measurement, or where this project is not.
    return {
        path.stem: path
        for path, text in texts.items()
        if "\ndef main()" in text and "__main__" not in text
    }


def summary(path: Path) -> str:
    """Return the first sentence of a file's docstring, in one line."""
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(said.partition("\n\n")[0].split())


def main(words: list[str]) -> int | None:
    """Run the measurement that is named; returns its exit code."""
    if words[:1] == ["--print-only"]:
        measurements.WRITES = False
        words = words[1:]
    sys.path.append(str(TESTS))
    files = found()
    if not words:
        for name, path in files.items():
            print(f"{path.parent.name}/{name}: {summary(path)}")
        return 0
    name, *options = words
    if name not in files:
        sys.exit(f"there is no measurement {name}; python {sys.argv[0]} lists them")
    sys.argv = [f"run.py {name}", *options]
    code: int | None = importlib.import_module(f"{files[name].parent.name}.{name}").main()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
