"""What is offered for a word: of runs and files, as few as there are; the shells have tests too."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem, ShellComplete
from support.synthetic import write_run

from profd.cli import completion
from profd.cli.main import profd
from profd.daemon.tree import attachable

IDS = [f"2026112{day}-120000-{name}-000{day}" for day, name in enumerate(("ant", "bee", "bee"))]


@pytest.fixture(autouse=True)
def known(runs: Path) -> None:
    for run in IDS:
        write_run(runs / f"{run}.profd", seconds=1)


def offered(*words: str) -> set[tuple[str, str]]:
    *before, begun = words
    shell = ShellComplete(profd, {}, "profd", "_PROFD_COMPLETE")
    return {(item.type, item.value) for item in shell.get_completions(list(before), begun)}


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        (("summary", ""), {"latest", *IDS}),
        (("export", "20261121"), {IDS[1]}),
        (("view", "20261120-1"), {IDS[0]}),
        (("view", "an"), {IDS[0]}),
        (("view", "bee"), set()),
        (("diff", "l"), {"latest"}),
        (("diff", "latest", "l"), {"latest"}),
        (("export", "--format", "p"), {"pprof", "perfetto", "parquet"}),
        (("summary", "--phase", "data "), {"data wait", "data load in process"}),
        (("sto",), {"stop"}),
        (("window", "--inj"), {"--inject"}),
        (("fleet", "/da"), set()),
        (("run", "--", "python", "tr"), set()),
    ],
)
def test_words_are_completed_by_what_there_is(words: tuple[str, ...], plain: set[str]) -> None:
    found = offered(*words)
    assert {value for kind, value in found if kind == "plain"} == plain
    takes_file = (
        words[0] not in ("sto", "window")
        and not words[-2].startswith("--f")
        and (words[-2] != "--phase")
    )
    assert (("file", words[-1]) in found) is takes_file


def test_where_a_process_can_be_named_those_that_run_are_offered_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standing = attachable.Attachable(2026, "3.11", None, 1.0, ("python", "train.py"))
    monkeypatch.setattr(attachable, "find_attachable", lambda: [standing])
    for command in ("attach", "dump", "window"):
        assert ("plain", "2026") in offered(command, "20")
    assert {("plain", run) for run in IDS} <= offered("dump", "20") & offered("window", "20")


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("data", "'data wait'"),
        ('"data', "data wait"),
        ("'data", "data wait"),
        (None, "'data wait'"),
    ],
)
def test_bash_gets_a_word_with_blanks_as_one_word(
    typed: str | None, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["profd", "summary", "--phase", *([] if typed is None else [typed])]
    monkeypatch.setenv("COMP_WORDS", "\n".join(words))
    monkeypatch.setenv("COMP_CWORD", "3")
    bash = completion._QuotingBash(click.Command("profd"), {}, "profd", "_PROFD_COMPLETE")
    assert bash.format_completion(CompletionItem("data wait")) == f"plain,{value}"
    assert bash.format_completion(CompletionItem("a b", type="file")) == "file,a b"
