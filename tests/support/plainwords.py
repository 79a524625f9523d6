"""Words that texts for users leave out: metaphors of the house, and constructions that one cannot
skim.

A tree is where such texts lie.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from support import documents
from support.folders import ROOT

METAPHORS = (
    *(
        "purse",
        "desk",
        "crew",
        "shelf",
        "lineage",
        "lookout",
        "witness",
        "sighting",
        "sightings",
        "errand",
        "errands",
    ),
    *("exhibit", "exhibits", "patience", "hurry", "company", "crowding", "lateness", "absence"),
    *("census", "theater", "studio", "spendthrift", "inlet", "standstill", "stillness"),
)
"""Words of the code that mean nothing to a user.

What is plain English elsewhere (look, archive) is not among them.
"""
PATTERNS = {
    "told": r"\btold\b",
    "of which": r"\bof which\b",
    "who comes": r"\bwho comes\b",
    "What is … is": r"(?:^|[.:;] |\n)What is [^.?|]{1,60} is\b",
    **{word: rf"\b{word}\b" for word in METAPHORS},
}
_COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in PATTERNS.items()}
_MARKUP = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<script.*?</script>|<[^>]*>", re.DOTALL)
_SCRIPT_LITERAL = re.compile(r"[\"'`]((?:[^\"'`\\]|\\.)*)[\"'`]")
_CODE = re.compile(r"`[^`\n]*`|\]\([^)]*\)")


class Text(NamedTuple):
    """A text that users read, with where it stands."""

    file: str
    line: int
    text: str


def pages() -> Iterator[Text]:
    """Yield the lines of README and of the pages that people write, without the samples of code."""
    for page in documents.hand_written():
        yield from _lines(page)


def literals_of(folder: str) -> Iterator[Text]:
    """Yield the texts in the modules of a folder: literals that make up help and messages."""
    for module in sorted((ROOT / folder).rglob("*.py")):
        yield from (Text(_name(module), line, text) for line, text in literals(module.read_text()))


def report_page() -> Iterator[Text]:
    """Yield the texts of the report's page: what its templates show, and the literals of its
    scripts.
    """
    for file in sorted((ROOT / "daemon" / "render").rglob("*.j2")):
        shown = _MARKUP.sub(lambda markup: "\n" * markup[0].count("\n"), file.read_text())
        yield from (
            Text(_name(file), line, text)
            for line, text in enumerate(shown.splitlines(), 1)
            if text.strip()
        )
    for file in sorted((ROOT / "daemon" / "render").rglob("*.js")):
        for line, code in enumerate(file.read_text().splitlines(), 1):
            texts = (
                () if code.lstrip().startswith(("*", "/*", "//")) else _SCRIPT_LITERAL.findall(code)
            )
            yield from (Text(_name(file), line, text) for text in texts if " " in text)


def texts_of_findings() -> Iterator[Text]:
    """Yield the texts of the table of findings, which is data of ``daemon/findings``."""
    file = ROOT / "daemon" / "findings" / "texts.toml"
    for line, text in enumerate(file.read_text().splitlines(), 1):
        if not text.startswith("#"):
            yield Text(_name(file), line, text)


TREES: dict[str, Callable[[], Iterator[Text]]] = {
    "docs": pages,
    **{folder: partial(literals_of, folder) for folder in ("cli", "tui", "daemon")},
    "page": report_page,
    "findings": texts_of_findings,
}


def found_in(tree: str) -> list[str]:
    """Return the words in the texts of a tree that do not belong there, each with its place."""
    return [
        f"{file}:{line}: {name}: {excerpt}"
        for file, line, text in TREES[tree]()
        for name, excerpt in found(text)
    ]


def found(text: str) -> Iterator[tuple[str, str]]:
    """Yield the words that do not belong into a text, each with what stands around it.

    Names in backticks are none.
    """
    text = _CODE.sub(" ", text)
    for name, pattern in _COMPILED.items():
        for match in pattern.finditer(text):
            yield name, text[max(0, match.start() - 30) : match.end() + 30].strip()


def literals(module: str) -> list[tuple[int, str]]:
    """Return the sentences among a module's literals with their lines.

    Docstrings and single words are none.
    """
    tree = ast.parse(module)
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    texts = [
        (node.lineno, _text(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in silent | parts
    ]
    commands = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "command"
    ]
    texts += [
        (node.lineno, ast.get_docstring(node) or "") for node in commands
    ]  # click shows these as help
    return [(line, text) for line, text in sorted(texts) if " " in text]


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_text(part) if isinstance(part, ast.Constant) else "…" for part in node.values)


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _lines(page: Path) -> Iterator[Text]:
    """Yield a page's paragraphs, so that words at both ends of a line are found together."""
    line = 1
    for paragraph in re.split(r"(\n\n+)", page.read_text()):
        if not paragraph.startswith("```"):
            yield Text(page.name, line, paragraph.replace("\n", " "))
        line += paragraph.count("\n")
