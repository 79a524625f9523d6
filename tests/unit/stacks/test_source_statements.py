"""What a line of source may call."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from profd.daemon.stacks.source import PARSED_AT_ONCE, Statement, Statements


def statement(folder: Path, source: str, line: int) -> Statement | None:
    (folder / "x.py").write_text(source)
    return Statements().at(str(folder / "x.py"), line)


@pytest.mark.parametrize(
    "source",
    [
        "f(x)",
        "y = x.attribute",
        "y = x + 1",
        "y = x < 1",
        "y = x[0]",
        "y = -x",
        "y = not x",
        "if x:\n pass",
        "while x:\n pass",
        "for y in x:\n pass",
        "with x:\n pass",
        "y = [z for z in x]",
        "import x",
        "from x import y",
        "class Y(X):\n pass",
        "@x\ndef y():\n pass",
        "y = f'{x}'",
        "assert x",
        "raise x",
        "del x",
        "def f():\n yield from x",
        "async def f():\n await x",
        "y, z = *x, 1",
    ],
)
def test_whatever_may_enter_a_function_may_call(tmp_path: Path, source: str) -> None:
    line = 2 if source.endswith(("yield from x", "await x")) else 1
    found = statement(tmp_path, source, line)
    assert found is not None
    assert found.may_call


@pytest.mark.parametrize("source", ["y = x", "y = 1, 'a', x", "pass", "def f(a):\n pass", "try:\n f()\nfinally:\n g()"])
def test_names_and_constants_call_nothing(tmp_path: Path, source: str) -> None:
    found = statement(tmp_path, source, 1)
    assert found is not None
    assert not found.may_call


def test_a_statement_has_all_of_its_lines_and_a_compound_one_its_head(tmp_path: Path) -> None:
    source = "y = f(\n    g,\n    1,\n)\nwith h(\n    1,\n):\n    x = y\n"
    (tmp_path / "x.py").write_text(source)
    at = Statements().at
    file = str(tmp_path / "x.py")

    assert at(file, 3) == at(file, 1) == Statement(frozenset({"y", "f", "g"}), True, False)
    head, body = at(file, 6), at(file, 8)
    assert head is not None
    assert head.names == {"h"}
    assert body == Statement(frozenset({"x", "y"}), False, False)


def test_what_is_called_may_have_no_name(tmp_path: Path) -> None:
    for source in ("@f\nclass X: pass", "f()()", "f[0]()", "(lambda: 1)()"):
        found = statement(tmp_path, source, 1)
        assert found is not None
        assert found.calls_unnamed


def test_what_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    assert statement(tmp_path, "print 'Python 2'", 1) is None
    assert statement(tmp_path, "x = 1", 2) is None
    assert statement(tmp_path, "a = f(); b = 1", 1) is None
    for file in ("/nowhere/x.py", "<string>", "relative.py", str(tmp_path), "/nul\0.py"):
        assert Statements().at(file, 1) is None


def test_only_a_few_functions_are_parsed_at_once(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def g():\n    f(x)\n" * (PARSED_AT_ONCE + 1))
    statements = Statements()

    lines = range(2, 2 * PARSED_AT_ONCE + 3, 2)
    known = [statements.at(str(file), line) is not None for line in lines]
    assert known == [True] * PARSED_AT_ONCE + [False]
    statements.allow_more()
    assert all(statements.at(str(file), line) for line in lines)


def test_what_was_asked_is_known_without_parsing_again(tmp_path: Path) -> None:
    statements = Statements()
    files = [tmp_path / f"{number}.py" for number in range(100)]
    for file in files:
        file.write_text("f(x)\ny\n")
        statements.allow_more()
        assert statements.at(str(file), 1) is not None
    for _ in range(PARSED_AT_ONCE):
        statements.at(str(files[0]), 2)
    for file in files:
        found = statements.at(str(file), 1)
        assert found is not None
        assert found.may_call


def test_hardly_anything_is_held_of_what_was_parsed(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("".join(f"def f{number}(a):\n    b = a.c({number})\n    return b\n\n" for number in range(1000)))
    statements = Statements()
    tracemalloc.start()
    try:
        for line in range(2, 4 * 1000, 40):
            statements.allow_more()
            assert statements.at(str(file), line) is not None
        held_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 300_000
    assert peak_bytes < 2_000_000
