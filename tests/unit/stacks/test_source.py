"""What stands behind a frame: real files below a made-up root, and names that no file has."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S, until

from profd.daemon import asuser
from profd.daemon.stacks.source import SourceTree, is_library
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
