"""Measures how dense the product's code is, and holds it to budgets that may only fall.

    python packaging/density.py          # the figures, beside their budgets; 1 if one is exceeded
    python packaging/density.py --all    # and each function that has too many branches

A reader can follow a function that decides something every five lines or more. The budgets are what
was reached last; whoever gets below one lowers it here.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("cli", "daemon", "tui")
BUDGETS: dict[str, float] = {
    "syntax nodes": 395614,
    "branches a line, median": 0.29,
    "branches a line, 90 %": 0.50,
    "functions over 15 branches": 0,
    "branches of a function": 15,
    "numeric constants in 1,000 lines": 8.9,
    "class names of two modules": 3,
    "'where' in 1,000 words": 0.5,
    "lines over 100 columns": 13,
}
MOST_BRANCHES = 15
COLUMNS = 100
DECIDES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.match_case,
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Function(NamedTuple):
    """A function, with its branches, and its lines from the first to the last."""

    place: str
    name: str
    branches: int
    lines: int


class Module:
    """One file of the product, parsed."""

    def __init__(self, place: str, text: str) -> None:
        self.place, self.lines = place, text.splitlines()
        self.tree = ast.parse(text)
        self.nodes = list(ast.walk(self.tree))

    def functions(self) -> Iterator[Function]:
        for node in self.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield Function(f"{self.place}:{node.lineno}", node.name, branches(node), lines)

    def words(self) -> list[str]:
        """Return the words of all docstrings."""
        documented = (node for node in self.nodes if isinstance(node, DOCUMENTED))
        return [word for node in documented for word in (ast.get_docstring(node) or "").split()]

    def numbers(self) -> int:
        """Return how many names in capitals the module gives to numbers."""
        return sum(
            is_number(value) and target.id.strip("_").isupper()
            for statement in self.tree.body
            for target, value in assignments(statement)
        )


def branches(function: ast.AST) -> int:
    """Return how often a function decides: ``and``, ``or`` and comprehensions decide, too."""
    count = 0
    for node in ast.walk(function):
        if isinstance(node, DECIDES):
            count += 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def assignments(statement: ast.stmt) -> Iterator[tuple[ast.Name, ast.expr]]:
    """Yield each name that a statement assigns to, with its value."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target, statement.value
        elif isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            for name, value in zip(target.elts, statement.value.elts, strict=True):
                if isinstance(name, ast.Name):
                    yield name, value


def is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return not isinstance(value.value, (str, bytes, bool))
    return isinstance(value, (ast.BinOp, ast.UnaryOp))


def measure(modules: list[Module]) -> tuple[dict[str, float], list[Function]]:
    """Return the figures, and the functions with too many branches, the worst first."""
    functions = [function for module in modules for function in module.functions()]
    by_lines = sorted(one.branches / one.lines for one in functions if one.lines >= 8)
    too_many = sorted((one for one in functions if one.branches > MOST_BRANCHES), key=rank)
    lines = sum(len(module.lines) for module in modules)
    words = [word for module in modules for word in module.words()]
    classes = Counter(
        name
        for module in modules
        for name in {node.name for node in module.nodes if isinstance(node, ast.ClassDef)}
    )
    wheres = sum(word.strip(",.;:()\"'`").lower() == "where" for word in words)
    figures = {
        "syntax nodes": sum(len(module.nodes) for module in modules),
        "branches a line, median": round(by_lines[len(by_lines) // 2], 2),
        "branches a line, 90 %": round(by_lines[int(0.9 * len(by_lines))], 2),
        f"functions over {MOST_BRANCHES} branches": len(too_many),
        "branches of a function": max(one.branches for one in functions),
        "numeric constants in 1,000 lines": round(
            1000 * sum(module.numbers() for module in modules) / lines, 1
        ),
        "class names of two modules": sum(count > 1 for count in classes.values()),
        "'where' in 1,000 words": round(1000 * wheres / len(words), 1),
        f"lines over {COLUMNS} columns": sum(
            len(line) > COLUMNS for module in modules for line in module.lines
        ),
    }
    return figures, too_many


def rank(function: Function) -> tuple[int, str]:
    return -function.branches, function.place


def main() -> int:
    """Print the figures, and return how many exceed their budgets."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    modules = [Module(str(path.relative_to(ROOT)), path.read_text()) for path in paths]
    figures, too_many = measure(modules)
    exceeded = [name for name, figure in figures.items() if figure > BUDGETS[name]]
    for name, figure in figures.items():
        remark = "  too much" if name in exceeded else ""
        print(f"{name:34} {figure:>9,}  of {BUDGETS[name]:>9,}{remark}")
    if exceeded or "--all" in sys.argv:
        for one in too_many:
            print(f"  {one.branches} branches in {one.lines} lines: {one.place} {one.name}")
    return len(exceeded)


if __name__ == "__main__":
    sys.exit(main())
