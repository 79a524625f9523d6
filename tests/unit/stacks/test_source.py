"""What stands behind a frame: real files below a made-up root, and names that no file has."""

from __future__ import annotations

import os
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from support.present import there
from support.waiting import DEADLINE_S, until

from profd.daemon import asuser
from profd.daemon.stacks.source import (
    MOST_LINES,
    PARSED_AT_ONCE,
    SourceBlock,
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


LINEAR = "/opt/torch/nn/linear.py"


def test_path_begins_at_the_outermost_package_and_lines_are_those_of_the_file_as_first_seen(
    root: Path,
) -> None:
    tree = SourceTree(UserFiles(root=root))
    assert tree.module_path(LINEAR) == "torch/nn/linear.py"
    assert tree.module_path("/opt/train.py") == "train.py"
    lines = [tree.line(LINEAR, number) for number in (1, 2, 3)]
    assert lines == ["import math", "", "x = F.linear(a)"]
    assert [tree.line(LINEAR, number) for number in (0, -1, 4, 10**9)] == [None] * 4
    (root / "opt/torch/nn/linear.py").write_text("changed")
    assert tree.line(LINEAR, 1) == "import math"


def test_a_file_is_read_once_whoever_asks_and_whatever_is_between(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, read = UserFiles(root=root), list[str]()
    ask = files._ask

    def noted(request: bytes, path: str) -> tuple[bytes | None, list[int]]:
        read.append(path)
        return ask(request, path)

    monkeypatch.setattr(files, "_ask", noted)
    names = [f"/opt/{number}.py" for number in range(20)]
    for name in names:
        (root / name[1:]).write_text("a\nb\n")
    tree, other = SourceTree(files), Statements(files)
    for line in (1, 2):
        assert {tree.line(name, line) for name in names} == {"ab"[line - 1]}
    assert {other.line(name, 2) for name in names} == {"b"}
    assert read == names


def test_the_package_of_a_folder_is_looked_for_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, asked = UserFiles(root=root), list[str]()
    is_file = files.is_file

    def note(path: str) -> bool:
        asked.append(path)
        return is_file(path)

    monkeypatch.setattr(files, "is_file", note)
    tree = SourceTree(files)
    names = (LINEAR, "/opt/torch/nn/conv.py", "/opt/torch/_tensor.py")
    found = [tree.module_path(name) for name in names]
    assert found == ["torch/nn/linear.py", "torch/nn/conv.py", "torch/_tensor.py"]
    assert asked == [f"/opt/{folder}__init__.py" for folder in ("torch/nn/", "torch/", "")]


@pytest.mark.parametrize("file", ["<string>", "<frozen importlib._bootstrap>", "train.py", "", "/"])
def test_what_has_no_folder_keeps_its_name(root: Path, file: str) -> None:
    assert SourceTree(UserFiles(root=root)).module_path(file) == (file if file != "/" else ".")


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (
            "a = 1\n\x0c\nb = 2\r\nc = '\u2028'\n".encode(),
            ["a = 1", "", "b = 2", "c = '\u2028'", None],
        ),
        (b"x" * 1000, ["x" * 200, None]),
        (b"#\n" * asuser.MOST_BYTES, [None]),
        (b"name = 'caf\xe9'\n", ["name = 'caf\ufffd'", None]),
        (
            b"#!python\r# coding: latin-1\rx = 'caf\xe9'\r",
            ["#!python", "# coding: latin-1", "x = 'caf\xe9'", None],
        ),
        ("\ufeffx = 1\ny\x0b\x1c\x85\u2029z".encode(), ["x = 1", "y\x0b\x1c\x85\u2029z", None]),
        (
            "# coding: cp932\nx = '\u8868'\n".encode("cp932"),
            ["# coding: cp932", "x = '\u8868'", None],
        ),
        (b"# coding: rot13\nx = 1\n", ["# coding: rot13", "x = 1", None]),
        (b"# coding: nothing\nx = 1\n", ["# coding: nothing", "x = 1", None]),
    ],
    ids=[
        *(
            "a form feed ends no line",
            "an endless line is cut",
            "too large a file",
            "bytes that are no text",
        ),
        *(
            "an encoding",
            "a mark of UTF-8",
            "a byte like a backslash",
            "no encoding of text",
            "an unknown encoding",
        ),
    ],
)
def test_lines_of_odd_files(root: Path, content: bytes, lines: list[str | None]) -> None:
    (root / "odd.py").write_bytes(content)
    tree = SourceTree(UserFiles(root=root))
    assert [tree.line("/odd.py", number) for number in range(1, len(lines) + 1)] == lines


UNREADABLE = (
    *(
        "/missing.py",
        "relative.py",
        "<string>",
        "/opt",
        "/fifo",
        "/nul\0.py",
        "/\udcff.py",
        "/" + "x" * 5000,
    ),
    *(
        "/" + "/".join(["deep" * 60] * 100),
        "/opt/torch/nn/linear.py/below_a_file.py",
        "/../../../../../../..",
    ),
)


@pytest.mark.parametrize("file", UNREADABLE)
def test_what_cannot_be_read_has_no_line_and_harms_nothing(root: Path, file: str) -> None:
    os.mkfifo(root / "fifo")
    described = SourceTree(UserFiles(root=root)).describe(Frame("f", file, 1))
    assert described.source is None


def test_a_file_that_nobody_answers_for_in_time_is_read_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = UserFiles(root=root)
    files.deadline_s, files.pause_s = DEADLINE_S, 0.0
    tree = SourceTree(files)
    with monkeypatch.context() as context:
        context.setattr(files, "_exchange", partial(_raise, TimeoutError()))
        assert tree.line("/opt/torch/nn/linear.py", 1) is None
        assert tree.lines("/opt/torch/nn/linear.py") == [""]
    assert (
        until(lambda: tree.line("/opt/torch/nn/linear.py", 1), "the helper to answer")
        == "import math"
    )
    assert len(tree.lines("/opt/torch/nn/linear.py")) > 1


def _raise(error: Exception, *_: object) -> None:
    raise error


LIBRARIES = (
    *(
        "/opt/venv/lib/python3.11/site-packages/torch/nn/linear.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
    ),
    *(
        "/usr/lib/python3.11/threading.py",
        "/usr/lib64/python3.6/threading.py",
        "/opt/conda/lib/python3.13t/threading.py",
    ),
    *("<frozen importlib._bootstrap>", "<__array_function__ internals>"),
)
OF_THE_USER = (
    *(
        "/home/ada/train.py",
        "/home/ada/lib/python3_projects/train.py",
        "/home/ada/lib/train.py",
        "train.py",
    ),
    *(
        "/home/ada/python3.11/train.py",
        "<string>",
        "<stdin>",
        "<ipython-input-3-abc>",
        "/tmp/ipykernel_12/345.py",
    ),
)


@pytest.mark.parametrize("file", [*LIBRARIES, *OF_THE_USER])
def test_libraries_are_distinguished_from_code_of_the_user(file: str) -> None:
    assert is_library(file) == (file in LIBRARIES)


ENVIRONMENT = "/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("own", "file", "expected"),
    [
        (f"{ENVIRONMENT}/app/examples", f"{ENVIRONMENT}/app/examples/train.py", False),
        (f"{ENVIRONMENT}/app/examples", f"{ENVIRONMENT}/torch/a.py", True),
        ("/home/me/project", "<string>", True),
        ("/home/me/project", f"/home/me/project{ENVIRONMENT}/torch/a.py", True),
        ("/home/me/project", "/home/me/project/data/load.py", False),
    ],
)
def test_what_lies_beside_the_script_is_the_users_but_for_an_environment(
    own: str, file: str, expected: bool
) -> None:
    assert SourceTree(own=Path(own)).describe(Frame("f", file, 1)).is_library == expected
    assert not SourceTree().describe(Frame("f", "<string>", 1)).is_library  # python -c


GRADIENTS = """def train(model, teacher):
    for x in data:
        with torch.autocast("cpu"), torch.no_grad():
            if x is not None:
                wanted = teacher(
                    x,
                )
        y = model(x)
        with torch.set_grad_enabled(False):
            seen = model(y)
        with torch.set_grad_enabled(True):
            seen = model(y)

with torch.inference_mode():
    best = model(x)
    def later():
        return model(y)
"""


def test_lines_in_a_block_without_gradients_are_known_up_to_the_head_of_their_function(
    root: Path,
) -> None:
    (root / "train.py").write_text(GRADIENTS)
    tree = SourceTree(UserFiles(root=root))
    found = {
        line
        for line in range(-1, 20)
        if tree.describe(Frame("f", "/train.py", line)).is_without_gradients
    }
    assert found == {4, 5, 6, 7, 10, 15, 16}


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


def number_of(text: str) -> int:
    return next(
        number for number, line in enumerate(SOURCE.splitlines(), start=1) if line.strip() == text
    )


def block(text: str) -> SourceBlock:
    return there(block_around(SOURCE.splitlines(), number_of(text)))


@pytest.mark.parametrize(
    "text", ["def plain(", "if a:", "return b", "return f(", "# a comment, far left"]
)
def test_a_line_has_the_function_around_it_with_its_decorators(text: str) -> None:
    found = block(text)
    assert found == block("if a:")
    assert found.first_line == number_of("@cached")
    assert found.text.splitlines()[0] == "@cached"
    assert "a comment" in found.text
    assert "return f(" in found.text
    assert "class Net" not in found.text


def test_the_innermost_function_is_taken_and_keeps_its_place() -> None:
    found = block("return x")
    assert found.text.splitlines() == ["if 1:", "        def inner():", "            return x"]
    assert found.first_line + 2 == number_of("return x")
    assert "def forward" in block("return inner()").text
    assert (
        block("await self").text.splitlines()[1:]
        == SOURCE.splitlines()[number_of("async def wait(self):") - 1 :]
    )


@pytest.mark.parametrize("text", ["import torch", "LAYERS = [", "class Net:"])
def test_outside_of_functions_it_is_the_file(text: str) -> None:
    assert block(text) == SourceBlock(SOURCE.rstrip("\n"), 1)


def test_what_is_long_or_not_there_or_may_have_a_decorator_of_many_lines_tells_nothing() -> None:
    source = ["@decorated(", "    1,", ")", "def f():", "    return g()"]
    assert block_around(source, 4) is None
    assert block_around(source, 5) == SourceBlock("def f():\n    return g()", 4)
    assert block_around(["def f():", *["    g()"] * MOST_LINES], 2) is None
    assert block_around(["g()"] * (MOST_LINES + 1), 2) is None
    assert block_around(["g()"], 0) is None
    assert block_around(["g()"], 2) is None
    assert block_around([], 1) is None


def statement(folder: Path, source: str, line: int) -> Statement | None:
    (folder / "x.py").write_text(source)
    return Statements().at(str(folder / "x.py"), line)


CALLS = (
    *(
        "f(x)",
        "y = x.attribute",
        "y = x + 1",
        "y = x < 1",
        "y = x[0]",
        "y = -x",
        "y = not x",
        "y = f'{x}'",
    ),
    *(
        "if x:\n pass",
        "while x:\n pass",
        "for y in x:\n pass",
        "with x:\n pass",
        "y = [z for z in x]",
    ),
    *(
        "import x",
        "from x import y",
        "class Y(X):\n pass",
        "@x\ndef y():\n pass",
        "assert x",
        "raise x",
        "del x",
    ),
    *("y, z = *x, 1", "def f():\n yield from x", "async def f():\n await x"),
)
CALL_NOTHING = ("y = x", "y = 1, 'a', x", "pass", "def f(a):\n pass", "try:\n f()\nfinally:\n g()")


@pytest.mark.parametrize("source", [*CALLS, *CALL_NOTHING])
def test_what_may_enter_a_function_may_call_and_names_and_constants_call_nothing(
    tmp_path: Path, source: str
) -> None:
    line = 2 if source.endswith(("yield from x", "await x")) else 1
    assert there(statement(tmp_path, source, line)).may_call == (source in CALLS)


def test_a_statement_has_all_of_its_lines_and_a_compound_one_its_head(tmp_path: Path) -> None:
    source = "y = f(\n    g,\n    1,\n)\nwith h(\n    1,\n):\n    x = y\n"
    (tmp_path / "x.py").write_text(source)
    at = Statements().at
    file = str(tmp_path / "x.py")

    assert at(file, 3) == at(file, 1) == Statement(frozenset({"y", "f", "g"}), True, False)
    assert there(at(file, 6)).names == {"h"}
    assert at(file, 8) == Statement(frozenset({"x", "y"}), False, False)


@pytest.mark.parametrize("source", ["@f\nclass X: pass", "f()()", "f[0]()", "(lambda: 1)()"])
def test_what_is_called_may_have_no_name(tmp_path: Path, source: str) -> None:
    assert there(statement(tmp_path, source, 1)).calls_unnamed


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
        there(statements.at(str(file), 1))
    for _ in range(PARSED_AT_ONCE):
        statements.at(str(files[0]), 2)
    assert all(there(statements.at(str(file), 1)).may_call for file in files)


def test_hardly_anything_is_held_of_what_was_parsed(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        "".join(
            f"def f{number}(a):\n    b = a.c({number})\n    return b\n\n" for number in range(1000)
        )
    )
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


def test_files_are_held_up_to_a_number_of_bytes_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profd.daemon.userfiles.MOST_PACKED_BYTES", 100)
    tree, files = SourceTree(), [tmp_path / f"{number}.py" for number in range(20)]
    for number, file in enumerate(files):
        file.write_text(f"x = {number}\n")
        assert tree.lines(str(file))[0] == f"x = {number}"
    for file in files:
        file.unlink()
    read = [tree.line(str(file), 1) for file in reversed(files)]
    held = [line for line in read if line is not None]
    assert 4 <= len(held) <= 6
    assert held == read[: len(held)]
