"""The list of mutants: one plausible bug each, as a text of the product and the text that replaces it."""

from __future__ import annotations

import py_compile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

HERE = Path(__file__).parent


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bug: ``old`` stands once in ``file``, and ``new`` in its place is what a tired person might have written.

    ``means`` says what a user would suffer. ``tests`` are those that look at the place beside the ones that mirror the
    file. ``survives`` is the reason for which no test of the gate can notice, empty for nearly all.
    """

    name: str
    file: str
    old: str
    new: str
    means: str
    tests: tuple[str, ...] = ()
    survives: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    mutant: tuple[Mutant, ...]


class NotApplicable(Exception):
    """The mutant is not one of the code as it is now; the message says why."""


def load(folder: Path = HERE) -> dict[str, list[Mutant]]:
    """Return the mutants by area, which is the name of the file that lists them."""
    areas = {
        file.stem: list(msgspec.toml.decode(file.read_bytes(), type=_File).mutant)
        for file in sorted(folder.glob("*.toml"))
    }
    names = [mutant.name for mutants in areas.values() for mutant in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise NotApplicable(f"two mutants have one name: {', '.join(twice)}")
    return areas


def named_tests(mutant: Mutant, root: Path) -> list[str]:
    """Return the test files that mirror the mutant's file, with those that it names itself."""
    file = Path(mutant.file)
    parts = file.parts[1:] if file.parts[0] == "daemon" else file.parts
    folder = root / "tests" / "unit" / Path(*parts).parent
    mirrored = [folder / f"test_{file.stem}.py", *sorted(folder.glob(f"test_{file.stem}_*.py"))]
    found = [str(test.relative_to(root)) for test in mirrored if test.exists()]
    missing = [test for test in mutant.tests if not (root / test).exists()]
    if missing:
        raise NotApplicable(f"it names tests that are not there: {', '.join(missing)}")
    return list(dict.fromkeys([*found, *mutant.tests]))


def mutated(mutant: Mutant, text: str) -> str:
    """Return the text of the mutant's file with the bug in it; raises NotApplicable."""
    times = text.count(mutant.old)
    if times != 1:
        raise NotApplicable(f"its text stands {times} times in {mutant.file}, not once")
    if mutant.old == mutant.new:
        raise NotApplicable("it changes nothing")
    return text.replace(mutant.old, mutant.new)


@contextmanager
def applied(mutant: Mutant, root: Path) -> Iterator[None]:
    """Have a copy of the tree hold the bug for a while; raises NotApplicable."""
    file = root / mutant.file
    if not file.is_file():
        raise NotApplicable(f"{mutant.file} is gone")
    whole = file.read_text()
    broken = mutated(mutant, whole)
    try:
        _write(file, broken)
        yield
    finally:
        _write(file, whole)


def all_of(areas: dict[str, list[Mutant]], names: Sequence[str]) -> list[Mutant]:
    """Return the mutants of these names, all of them where none is given; raises NotApplicable."""
    mutants = [mutant for area in areas.values() for mutant in area]
    unknown = set(names) - {mutant.name for mutant in mutants}
    if unknown:
        raise NotApplicable(f"there is no mutant {', '.join(sorted(unknown))}")
    return [mutant for mutant in mutants if not names or mutant.name in names]


def _write(file: Path, text: str) -> None:
    """Write a file, and its bytecode where it is Python's.

    Python takes bytecode for current by the second and the size of the source: a mutant may have both alike.
    """
    file.write_text(text)
    if file.suffix == ".py":
        try:
            py_compile.compile(str(file), doraise=True)
        except py_compile.PyCompileError as error:
            raise NotApplicable(f"{file.name} does not compile: {error.msg}") from error
