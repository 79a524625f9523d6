"""What stands behind a frame: real files below a made-up root, and names that no file has."""

from __future__ import annotations

import os
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S, until

from profd.daemon import asuser
from profd.daemon.stacks.source import (
    MOST_LINES,
    PARSED_AT_ONCE,
    Block,
    SourceTree,
    Statement,
    Statements,
    block_around,
    is_library,
)
from profd.daemon.store.records import Frame
from profd.daemon.userfiles import UserFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    package = tmp_path / "opt" / "torch" / "nn"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    (package / "linear.py").write_text("import math\n\n    x = F.linear(a)   \n")
    return tmp_path


def test_path_begins_at_the_outermost_package(root: Path) -> None:
    tree = SourceTree(UserFiles(root=root))
    assert tree.module_path("/opt/torch/nn/linear.py") == "torch/nn/linear.py"
    assert tree.module_path("/opt/train.py") == "train.py"


@pytest.mark.parametrize("file", ["<string>", "<frozen importlib._bootstrap>", "train.py", "", "/"])
def test_what_has_no_folder_keeps_its_name(root: Path, file: str) -> None:
    assert SourceTree(UserFiles(root=root)).module_path(file) == (file if file != "/" else ".")


def test_line_is_stripped_and_counted_from_one(root: Path) -> None:
    tree = SourceTree(UserFiles(root=root))
    assert tree.line("/opt/torch/nn/linear.py", 1) == "import math"
    assert tree.line("/opt/torch/nn/linear.py", 2) == ""
    assert tree.line("/opt/torch/nn/linear.py", 3) == "x = F.linear(a)"


@pytest.mark.parametrize("line", [0, -1, 4, 10**9])
def test_line_that_the_file_does_not_have(root: Path, line: int) -> None:
    assert SourceTree(UserFiles(root=root)).line("/opt/torch/nn/linear.py", line) is None


def test_line_is_of_the_file_as_it_was_when_first_seen(root: Path) -> None:
    tree = SourceTree(UserFiles(root=root))
    tree.line("/opt/torch/nn/linear.py", 1)
    (root / "opt/torch/nn/linear.py").write_text("changed")
    assert tree.line("/opt/torch/nn/linear.py", 1) == "import math"


def test_a_form_feed_ends_no_line(root: Path) -> None:
    (root / "paged.py").write_text("a = 1\n\x0c\nb = 2\r\nc = '\u2028'\n")
    assert [SourceTree(UserFiles(root=root)).line("/paged.py", line) for line in (1, 2, 3, 4, 5)] == [
        "a = 1",
        "",
        "b = 2",
        "c = '\u2028'",
        None,
    ]


def test_endless_line_is_cut(root: Path) -> None:
    (root / "long.py").write_text("x" * 1000)
    line = SourceTree(UserFiles(root=root)).line("/long.py", 1)
    assert line is not None
    assert len(line) == 200


@pytest.mark.parametrize(
    "file",
    [
        "/missing.py",
        "relative.py",
        "<string>",
        "/opt",
        "/fifo",
        "/" + "x" * 5000,
        "/" + "/".join(["deep" * 60] * 100),
        "/nul\0.py",
        "/\udcff.py",
        "/opt/torch/nn/linear.py/below_a_file.py",
        "/../../../../../../..",
    ],
)
def test_what_cannot_be_read_has_no_line_and_harms_nothing(root: Path, file: str) -> None:
    os.mkfifo(root / "fifo")
    described = SourceTree(UserFiles(root=root)).describe(Frame("f", file, 1))
    assert described.source is None


def test_a_file_that_nobody_answers_for_in_time_is_read_later(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = UserFiles(root=root, deadline_s=DEADLINE_S, pause_s=0.0)
    tree = SourceTree(files)
    with monkeypatch.context() as context:
        context.setattr(files, "_exchange", partial(_raise, TimeoutError()))
        assert tree.line("/opt/torch/nn/linear.py", 1) is None
        assert tree.lines("/opt/torch/nn/linear.py") == [""]
    assert until(lambda: tree.line("/opt/torch/nn/linear.py", 1), "the helper to answer") == "import math"
    assert len(tree.lines("/opt/torch/nn/linear.py")) > 1


def _raise(error: Exception, *_: object) -> None:
    raise error


def test_a_file_too_large_for_a_source_is_not_read(root: Path) -> None:
    (root / "large.py").write_bytes(b"#\n" * asuser.MOST_BYTES)
    assert SourceTree(UserFiles(root=root)).line("/large.py", 1) is None


def test_bytes_that_are_no_text_are_replaced(root: Path) -> None:
    (root / "latin.py").write_bytes(b"name = 'caf\xe9'\n")
    assert SourceTree(UserFiles(root=root)).line("/latin.py", 1) == "name = 'caf�'"


@pytest.mark.parametrize(
    "file",
    [
        "/opt/venv/lib/python3.11/site-packages/torch/nn/linear.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        "/usr/lib/python3.11/threading.py",
        "/usr/lib64/python3.6/threading.py",
        "/opt/conda/lib/python3.13t/threading.py",
        "<frozen importlib._bootstrap>",
        "<__array_function__ internals>",
    ],
)
def test_library(file: str) -> None:
    assert is_library(file)


@pytest.mark.parametrize(
    "file",
    [
        "/home/ada/train.py",
        "/home/ada/lib/python3_projects/train.py",
        "/home/ada/lib/train.py",
        "/home/ada/python3.11/train.py",
        "train.py",
        "<string>",
        "<stdin>",
        "<ipython-input-3-abc>",
        "/tmp/ipykernel_12/345.py",
    ],
)
def test_code_of_the_user(file: str) -> None:
    assert not is_library(file)


def test_what_lies_beside_the_script_is_the_users_wherever_that_is() -> None:
    tree = SourceTree(own=Path("/venv/lib/python3.11/site-packages/app/examples"))
    own = Frame("train", "/venv/lib/python3.11/site-packages/app/examples/train.py", 1)
    other = Frame("call", "/venv/lib/python3.11/site-packages/torch/nn/module.py", 1)
    assert not tree.describe(own).is_library
    assert tree.describe(other).is_library


def test_an_environment_beside_the_script_is_still_a_library() -> None:
    tree = SourceTree(own=Path("/home/me/project"))
    assert tree.describe(Frame("call", "/home/me/project/.venv/lib/python3.11/site-packages/torch/a.py", 1)).is_library
    assert not tree.describe(Frame("f", "/home/me/project/data/load.py", 1)).is_library


SOURCE = """import torch

LAYERS = [
    1,
]


@cached
# twice
@torch.jit.script
def plain(
    a,
    b,
) -> int:
    if a:
        return b

    # a comment, far left
# further left
    return f(
        a,
    )


class Net:
    def forward(self, x):
        def inner():
            return x

        return inner()

    async def wait(self):
        await self
"""


def lines_of(first: int, last: int) -> list[str]:
    return SOURCE.splitlines()[first - 1 : last]


def number_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE.splitlines(), start=1) if line.strip() == text)


def block(text: str) -> Block:
    found = block_around(SOURCE.splitlines(), number_of(text))
    assert found is not None
    return found


@pytest.mark.parametrize("text", ["if a:", "return b", "return f(", "# a comment, far left"])
def test_a_line_has_the_function_around_it(text: str) -> None:
    found = block(text)
    assert found.first_line == number_of("@cached")
    assert found.text.splitlines()[0] == "@cached"
    assert "a comment" in found.text
    assert "return f(" in found.text
    assert "class Net" not in found.text


def test_a_head_comes_with_its_decorators() -> None:
    assert block("def plain(") == block("if a:")


def test_the_innermost_function_is_taken_and_keeps_its_place() -> None:
    found = block("return x")
    assert found.text.splitlines() == ["if 1:", "        def inner():", "            return x"]
    assert found.first_line + 2 == number_of("return x")
    assert "def forward" in block("return inner()").text
    assert block("await self").text.splitlines()[1:] == lines_of(number_of("async def wait(self):"), 99)


@pytest.mark.parametrize("text", ["import torch", "LAYERS = [", "class Net:"])
def test_outside_of_functions_it_is_the_file(text: str) -> None:
    assert block(text) == Block(SOURCE.rstrip("\n"), 1)


def test_a_head_that_may_have_a_decorator_of_many_lines_tells_nothing() -> None:
    source = ["@decorated(", "    1,", ")", "def f():", "    return g()"]
    assert block_around(source, 4) is None
    assert block_around(source, 5) == Block("def f():\n    return g()", 4)


def test_what_is_long_or_not_there_tells_nothing() -> None:
    assert block_around(["def f():", *["    g()"] * MOST_LINES], 2) is None
    assert block_around(["g()"] * (MOST_LINES + 1), 2) is None
    assert block_around(["g()"], 0) is None
    assert block_around(["g()"], 2) is None
    assert block_around([], 1) is None


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
