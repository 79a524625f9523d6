"""The unit tests mirror the tree, so that the test of a module is where a newcomer looks for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from mutants.mutants import all_of, load, named_tests
from support.folders import DOCS, ROOT, TESTS

UNIT = TESTS / "unit"
PRODUCT = ("cli", "daemon", "tui")
PROMISES = ("security.md", "reliability.md")
"""The pages that promise what holds."""
LEAST_LINES = 40
"""What is shorter may be tested by what uses it."""
MOST_ON_THE_WAY = 14
"""So many files, and so many types, that a sample passes from py-spy to the screen."""
OF_THE_TREE = frozenset({"test_documentation", "test_layers", "test_layout"})
WITHOUT_TEST = frozenset[str]()
"""Modules that no test of their own folder reaches. Take out what has one; put in nothing."""

_IMPORT = re.compile(
    r"^ *(?:from (profd[\w.]*) import (\([^)]*\)|.*)|import (profd[\w.]*))", re.MULTILINE
)
_IN_TABLE = re.compile(r"`((?:cli|daemon|tui)/[\w/]+\.py)`")
_SOURCE = re.compile(r"`([\w/]+/[\w/]+\.(?:py|js|toml|sql))`|`(\w+\.py)`")
_DRAWN = re.compile(r"(?:\w+/)+\w+\.py")  # pictures name files without backticks
_NAMED_FILE = re.compile(r"`((?:integration|unit)/[\w/]+\.py)`")
_NAMED_MUTANT = re.compile(r"`([a-z]+(?:-[a-z]+)+)`")
_NAMED_TEST = re.compile(r"`((?:integration|replay|unit)/[\w/]+\.py)((?:::\w+)+)")


def test_a_test_file_is_named_after_what_it_tests() -> None:
    misnamed = [
        shown(path)
        for path in sorted(UNIT.rglob("test_*.py"))
        if not (path.parent == UNIT and path.stem in OF_THE_TREE)
        and not is_named_after(path, mirrored(path.parent))
    ]
    assert misnamed == []


def test_a_module_is_tested_in_the_folder_that_mirrors_its_own() -> None:
    outside = modules_run_as_processes()
    missing = {
        shown(path) for path in long_modules() if shown(path) not in outside and not is_tested(path)
    }
    assert missing == WITHOUT_TEST


def test_modules_that_run_as_processes_are_tested_by_files_that_are_there() -> None:
    for module, tests in modules_run_as_processes().items():
        assert (ROOT / module).is_file(), module
        assert tests
        assert [name for name in tests if not (TESTS / name).is_file()] == []


def test_each_test_that_a_document_names_is_there() -> None:
    for document in ("testing.md", "mutants.md", *PROMISES):
        named = set(_NAMED_TEST.findall((DOCS / document).read_text()))
        assert named
        assert (
            sorted(path + test for path, test in named if test not in names_in(TESTS / path)) == []
        ), document


@pytest.mark.parametrize("document", PROMISES)
def test_each_promise_has_a_test_and_a_mutant_that_the_test_meets(document: str) -> None:
    """A line of a table, or a paragraph, that names a test is a promise.

    Each line of these tables is one.
    """
    known = {mutant.name: mutant for mutant in all_of(load(), ())}
    text = (DOCS / document).read_text()
    promised = [block for block in blocks_of(text) if _NAMED_TEST.search(block)]
    assert len(promised) > 10
    assert [row for row in rows_of(text, "held by") if row not in promised] == []
    for block in promised:
        files, names = (
            {f"tests/{path}" for path, _ in _NAMED_TEST.findall(block)},
            _NAMED_MUTANT.findall(block),
        )
        assert names, f"no mutant is named beside {block}"
        assert [name for name in names if name not in known] == [], block
        assert [name for name in names if files.isdisjoint(named_tests(known[name], ROOT))] == [], (
            block
        )


def blocks_of(text: str) -> list[str]:
    """Return the paragraphs of a page, and each line of its tables by itself."""
    paragraphs = re.split(r"\n(?:\s*\n)+", text)
    return [
        block
        for part in paragraphs
        for block in (part.splitlines() if part.startswith("| ") else [part])
    ]


def rows_of(text: str, column: str) -> list[str]:
    """Return the lines of the tables of a page that have this column."""
    tables = [
        part.splitlines() for part in re.split(r"\n(?:\s*\n)+", text) if part.startswith("| ")
    ]
    return [row for head, _, *rows in tables if f"| {column} |" in head for row in rows]


def test_each_file_that_the_architecture_names_is_there() -> None:
    text = (DOCS / "architecture.md").read_text() + (DOCS / "ways.md").read_text()
    named = {path or name for path, name in _SOURCE.findall(text)} | set(_DRAWN.findall(text))
    assert len(named) > 50
    assert (
        sorted(
            name
            for name in named
            if not any((top / name).is_file() for top in (ROOT, ROOT / "daemon"))
        )
        == []
    )


def test_a_sample_passes_at_most_so_many_files_and_types() -> None:
    section = (
        (DOCS / "ways.md")
        .read_text()
        .partition("## From py-spy's bytes to the screen")[2]
        .partition("\n## ")[0]
    )
    rows = [line.split("|")[2:4] for line in section.splitlines() if line.startswith("| ")][1:]
    files = {
        name: re.findall(r"`(\w+)`", types)
        for names, types in rows
        for name in re.findall(r"`([\w/]+\.py)`", names)
    }
    types = {name for found in files.values() for name in found}
    assert f"That is {len(files)} files and {len(types)} types." in section
    assert len(files) <= MOST_ON_THE_WAY
    assert len(types) <= MOST_ON_THE_WAY
    for name, found in files.items():
        text = next(
            top / name for top in (ROOT, ROOT / "daemon") if (top / name).is_file()
        ).read_text()
        assert [one for one in found if not re.search(rf"\b{one}\b", text)] == [], name


def mirrored(folder: Path) -> Path:
    """Return the folder that a folder of unit tests mirrors: those of daemon/ lie at the top."""
    parts = folder.relative_to(UNIT).parts
    if parts[:1] in [("cli",), ("tui",), ("benchmarks",), ("packaging",)]:
        return ROOT.joinpath(*parts)
    return ROOT.joinpath("daemon", *parts)


def is_named_after(test: Path, folder: Path) -> bool:
    """Say whether a test file has the name of a module in a folder, or the folder's.

    An aspect may follow.
    """
    names = {path.stem for path in folder.iterdir()} | {folder.name}
    words = test.stem.removeprefix("test_").split("_")
    return any("_".join(words[:count]) in names for count in range(1, len(words) + 1))


def long_modules() -> Iterator[Path]:
    """Yield the modules of the product that need a test of their own: what only declares fields has
    nothing to test.
    """
    for path in (path for top in PRODUCT for path in (ROOT / top).rglob("*.py")):
        text = path.read_text()
        if (
            not path.stem.startswith("__")
            and len(text.splitlines()) >= LEAST_LINES
            and "def " in text
        ):
            yield path


def is_tested(module: Path) -> bool:
    """Say whether the tests of a module's folder reach it.

    A command is run by its name: there the file counts.
    """
    folder = UNIT / module.parent.relative_to(
        ROOT / ("daemon" if module.is_relative_to(ROOT / "daemon") else "")
    )
    if module.parent == ROOT / "cli":
        return any(
            is_named_after(test, module.parent) and test.stem[5:].startswith(module.stem)
            for test in folder.glob("test_*.py")
        )
    return dotted(module) in reached(module.parent, folder)


@cache
def reached(package: Path, folder: Path) -> frozenset[str]:
    """Return the modules of a package that tests import, and what these import of the same package."""
    known = {dotted(path): path for path in package.glob("*.py")}
    found, todo = set[str](), list(folder.glob("test_*.py"))
    while todo:
        new = (set(imported(todo.pop().read_text())) & known.keys()) - found
        found |= new
        todo += (known[name] for name in new)
    return frozenset(found)


def imported(text: str) -> Iterator[str]:
    for package, names, module in _IMPORT.findall(text):
        yield package or module
        yield from (f"{package}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?", names))


def dotted(module: Path) -> str:
    return ".".join(("profd", *module.relative_to(ROOT).with_suffix("").parts))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def modules_run_as_processes() -> dict[str, list[str]]:
    """Return the modules that docs/testing.md gives integration tests for, with these."""
    section = (
        (DOCS / "testing.md").read_text().partition("## Where a test lies")[2].partition("\n## ")[0]
    )
    rows = [
        line
        for line in section.splitlines()
        if line.startswith("| `") and _IN_TABLE.search(line.split("|")[1])
    ]
    return {
        module: _NAMED_FILE.findall(row.split("|")[2])
        for row in rows
        for module in _IN_TABLE.findall(row.split("|")[1])
    }


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the tests of a file as ``::name`` or ``::Class::name``.

    None where there is no such file.
    """
    return (
        frozenset(_named(ast.parse(path.read_text()).body, "")) if path.is_file() else frozenset()
    )


def _named(body: Iterable[ast.stmt], above: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _named(node.body, f"{above}::{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{above}::{node.name}"
