"""Which part of a file is parsed to learn of one of its lines."""

from __future__ import annotations

import pytest

from profd.daemon.stacks.source import MOST_LINES, Block, block_around

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
