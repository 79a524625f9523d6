"""What documents show is so: samples parse, commands and options exist, and pages keep to their
lengths and words.

``integration/test_documented_commands.py`` runs the commands; mkdocs checks links and anchors.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import documents, plainwords
from support.documents import (
    PAGES,
    Sample,
    commands_of,
    hand_written,
    samples,
    unknown_in,
    why_refused,
)
from support.folders import DOCS, ROOT
from support.present import there

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LANGUAGES = frozenset({"sh", "python", "toml", "yaml", "json", "sql", "promql", "text"})
MOST_LINES_OF_README = 140
MOST_LINES_OF_A_DECISION = 6
MOST_LETTERS_OF_A_LINE = 150
MOST_WORDS_OF_THE_GLOSSARY = 40

by_page = pytest.mark.parametrize("page", hand_written(), ids=lambda page: page.name)


@by_page
def test_a_sample_names_its_language(page: Path) -> None:
    assert [sample.place for sample in samples(page) if sample.language not in LANGUAGES] == []
    assert re.findall(r"(?<=\n\n)    \S.*", documents.prose(page)) == []  # indented ones cannot


@by_page
def test_samples_parse(page: Path) -> None:
    broken = {sample.place: why for sample in samples(page) if (why := why_broken(sample))}
    assert broken == {}


@by_page
def test_commands_and_options_exist(page: Path) -> None:
    in_blocks, inline = documents.shown_in_blocks(page), documents.shown_inline(page)
    assert {shown.text: why for shown in in_blocks if (why := why_refused(shown.words))} == {}
    assert {shown.text: unknown for shown in inline if (unknown := unknown_in(shown.words))} == {}


@by_page
def test_files_and_targets_of_make_exist(page: Path) -> None:
    text = documents.prose(page)
    files = re.findall(
        r"`((?:benchmarks|cli|daemon|docs|packaging|target|tests|tui)/[\w./-]+)`", text
    )
    assert [file for file in files if "NAME" not in file and not (ROOT / file).exists()] == []
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shell = "".join(sample.text for sample in samples(page) if sample.language == "sh")
    named = re.findall(r"`make ([a-z]+)", text) + re.findall(r"^make ([a-z]+)", shell, re.MULTILINE)
    assert [target for target in named if target not in targets] == []


@by_page
def test_anchors_exist_on_the_code_host_too(page: Path) -> None:
    links = re.findall(r"\]\(([\w./-]*)#([^)]+)\)", documents.prose(page))
    targets = [(page.parent / file if file else page, anchor) for file, anchor in links]
    assert [
        f"{file.name}#{anchor}" for file, anchor in targets if anchor not in documents.anchors(file)
    ] == []


def test_the_site_has_no_broken_link_and_loads_nothing_from_a_network(tmp_path: Path) -> None:
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(mkdocs, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = [page.read_text() for page in tmp_path.rglob("*.html")]
    assert len(pages) > len(PAGES)
    loaded = r"""<(?:script|img|iframe)[^>]*src=["'](https?:|//)|<link[^>]*href=["'](https?:|//)"""
    assert [page for page in pages if re.search(loaded, page)] == []
    assert (tmp_path / "search" / "search_index.json").stat().st_size > 0


def test_readme_and_the_glossary_are_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES_OF_README
    words = re.findall(
        r"^\| \*\*(.+?)\*\* \| .+ \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE
    )
    assert 20 < len(words) <= MOST_WORDS_OF_THE_GLOSSARY
    assert words == sorted(words)


COSTS = {
    "CPU, after the first minute, headless": "**headless, after the first minute** (ratio to be "
    "at most 0.5)",
    "the same while a dashboard asks for fresh data": "**watched, after the first minute** (ratio "
    "to be at most 1.5)",
    "CPU, first 10 s, headless": "headless, first 10 s",
    "CPU, 10 to 70 s, headless": "headless, 10 to 70 s",
    "CPU, first 10 s, with a dashboard": "watched, first 10 s",
    "memory, pages that processes share counted once": "headless, memory, RSS (PSS)",
}
SLOWER = {
    "small steps": r"loops of small steps became ([\d.]+) % slower\s+\(95 % interval: ([\d.]+) "
    r"to ([\d.]+) %",
    "many threads": r"160 threads of Python ([\d.]+) % \(([\d.]+) to ([\d.]+) %\)",
    "data-bound": r"wait for\s+storage ([\d.]+) % \(([\d.]+) to ([\d.]+) %;",
    "cores full": r"missing\s+there: steps became ([\d.]+) % slower",
}


def test_the_readme_has_the_costs_that_were_measured() -> None:
    measured, readme = (DOCS / "measurements.md").read_text(), (ROOT / "README.md").read_text()
    rows = {title: cells for title, *cells in _rows(measured)}
    for title, *cells in _rows(readme):
        if title in COSTS:
            numbers = [float(cell.split()[0]) for cell in cells]
            exact = [float(re.findall(r"[\d.]+", cell)[-1]) for cell in rows[COSTS[title]][:2]]
            assert numbers == pytest.approx(exact, abs=0.051), title
    assert COSTS.keys() <= {title for title, *_ in _rows(readme)}
    for loop, words in SLOWER.items():
        shown = there(re.search(words, readme)).groups()
        exact = [float(number) for number in re.findall(r"[\d.]+", rows[f"{loop}, wall"][2])]
        assert [float(number) for number in shown] == pytest.approx(
            exact[: len(shown)], abs=0.051
        ), loop


def _rows(page: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line[:2] == "| "
    ]


def test_a_decision_is_short() -> None:
    entries = (DOCS / "decisions.md").read_text().split("\n## ")[1:]
    assert len(entries) > 20
    for entry in entries:
        title, *lines = [line for line in entry.splitlines() if line]
        assert len(lines) <= MOST_LINES_OF_A_DECISION, title
        assert max(map(len, lines)) <= MOST_LETTERS_OF_A_LINE, title


@pytest.mark.parametrize("tree", plainwords.TREES)
def test_texts_for_users_keep_to_plain_words(tree: str) -> None:
    assert plainwords.found_in(tree) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The user is told why. The Purse pays.", {"told", "purse"}),
        ("Three runs, two of which failed.", {"of which"}),
        ("Who comes second waits. What is not seen is unknown.", {"who comes", "What is … is"}),
        ("It untold reports. `told` is a column. The path of whichever run.", set()),
    ],
    ids=["words", "of which", "sentences", "within others, and names in code"],
)
def test_words_that_are_not_plain_are_found(text: str, words: set[str]) -> None:
    assert {name for name, _ in plainwords.found(text)} == words


def test_a_text_in_code_is_found_in_literals_alone() -> None:
    module = '"""Users are told."""\n# told\nraise UsageError(f"was told {told}")\n'
    assert [(line, text) for line, text in plainwords.literals(module)] == [(3, "was told …")]


def test_commands_are_found_wherever_a_line_of_shell_has_one() -> None:
    line = (
        "A=1 sudo profd ls --json | profd view x > y && srun sh -c 'profd run -- \"$A\"'; echo "
        "profd # profd no"
    )
    assert list(commands_of(line)) == [("ls", "--json"), ("view", "x"), ("run", "--", "$A")]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        *(("summary latest --gpu-idle", ""), ("run --headless -- python --none", "")),
        *(("summarize latest", "No such command"), ("summary latest --none", "No such option")),
        *(("window RUN --steps many", "Invalid value"), ("diff", "Missing argument")),
    ],
)
def test_a_whole_command_is_judged_by_click_and_a_part_by_its_options(words: str, why: str) -> None:
    refused = why_refused(tuple(words.split()))
    assert refused.startswith(why)
    assert bool(refused) == bool(why)
    unknown = {"No such command": ["summarize"], "No such option": ["--none"]}.get(why, [])
    assert unknown_in(tuple(words.split())) == unknown


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "profd 'ls"),
        ("python", "x = = 1"),
        ("toml", "a = "),
        ("yaml", "a: [1"),
        ("json", "{"),
        ("sh", "a |"),
    ],
)
def test_a_broken_sample_is_found(language: str, text: str) -> None:
    assert why_broken(Sample("README.md", 1, language, text)) != ""


def why_broken(sample: Sample) -> str:
    """Say why a sample does not parse; nothing where it does."""
    try:
        match sample.language:
            case "sh":
                checked = subprocess.run(
                    ["bash", "-n"], input=sample.text, capture_output=True, text=True, check=False
                )
                return checked.stderr
            case "python":
                ast.parse(sample.text)
            case "toml":
                tomllib.loads(sample.text)
            case "yaml":
                yaml.safe_load(sample.text)
            case "json":
                json.loads(sample.text)
    except (ValueError, SyntaxError, yaml.YAMLError) as error:
        return str(error)
    return ""
