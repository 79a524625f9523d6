"""README, CONTRIBUTING, SECURITY and the pages of docs/: their samples of code, and the commands of
profd's that they show.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from profd.cli.main import COMMANDS, load_command
from support.folders import DOCS, ROOT

PAGES = (
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted(DOCS.glob("*.md")),
    ROOT / "packaging" / "skill" / "SKILL.md",
)
WRITTEN_BY_PROGRAMS = ("measurements.md", "mutants.md", "environments.md")

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(profd [^`\n]+)`")
_ENDS_COMMAND = frozenset({";", "&&", "||", "|", "&", "(", ")"})
_REDIRECTS = frozenset({">", ">>", "<"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class Sample(NamedTuple):
    """A fenced block of a page, with the number of its first line."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """A command of profd's that a page shows: its words after ``profd``, and the whole line of
    shell around it.
    """

    page: str
    words: tuple[str, ...]
    shell: str

    @property
    def text(self) -> str:
        return shlex.join(("profd", *self.words))


def hand_written() -> tuple[Path, ...]:
    """Return the pages that no program writes."""
    return tuple(page for page in PAGES if page.name not in WRITTEN_BY_PROGRAMS)


def samples(page: Path) -> Iterator[Sample]:
    """Yield the fenced blocks of a page."""
    text = page.read_text()
    for block in _FENCED.finditer(text):
        yield Sample(page.name, text.count("\n", 0, block.start(2)) + 1, block[1], block[2])


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCED.sub("\n", page.read_text())


def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as the code host makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


def shown_in_blocks(page: Path) -> Iterator[Command]:
    """Yield the commands of profd's in the samples of shell, in order."""
    for sample in samples(page):
        if sample.language == "sh":
            for line in sample.text.replace("\\\n", " ").splitlines():
                yield from (Command(page.name, words, line) for words in commands_of(line))


def shown_inline(page: Path) -> Iterator[Command]:
    """Yield the commands of profd's within sentences and tables."""
    for text in _INLINE.findall(prose(page)):
        yield Command(page.name, tuple(shlex.split(text)[1:]), text)


def commands_of(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the words after ``profd`` of each such command in a line of shell, those for another
    shell included.
    """
    words = list[str]()
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if word in _ENDS_COMMAND:
            yield from _command(words)
            words = []
        else:
            words.append(word)


def why_refused(words: tuple[str, ...]) -> str:
    """Say why click refuses the words of a whole command; nothing where it takes them.

    Nothing is run.
    """
    name, *rest = ["1" if word == "PID" or word.startswith("$(") else word for word in words]
    if name not in COMMANDS:
        return f"No such command {name!r}"
    try:
        command_named(name).make_context(name, rest)
    except click.ClickException as error:
        return error.format_message()
    return ""


def unknown_in(words: tuple[str, ...]) -> list[str]:
    """Return the name or the options that do not exist of a command that is shown without its
    arguments.
    """
    name, *rest = words
    if name in ("COMMAND", "NAME"):
        return []
    if name not in COMMANDS:
        return [name]
    options = {option for parameter in command_named(name).params for option in parameter.opts} | {
        "--help"
    }
    own = rest[: rest.index("--")] if "--" in rest else rest
    return [word for word in own if word.startswith("-") and word.partition("=")[0] not in options]


def command_named(name: str) -> click.Command:
    command: click.Command = load_command(name)
    return command


def _command(words: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the words of a command of profd's, or of one that a command gives to a shell."""
    while words and (words[0] == "sudo" or _ASSIGNMENT.match(words[0])):
        words = words[1:]
    if words[:1] == ["profd"]:
        redirected = next(
            (place for place, word in enumerate(words) if word in _REDIRECTS), len(words)
        )
        if redirected > 1:  # else it is the program that a shell asks for its completion
            yield tuple(words[1:redirected])
    elif "-c" in words and words[words.index("-c") - 1] == "sh":
        yield from commands_of(words[words.index("-c") + 1])
