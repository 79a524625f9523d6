"""What a shell offers for a word that is being typed: runs, processes, phases, files."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from profd.daemon import paths


class _QuotingBash(BashComplete):
    """Completes words with blanks as one word, which bash leaves to the program."""

    name = "bash"

    def format_completion(self, item: CompletionItem) -> str:
        # The words come a line each; within a quote that the user has opened all is one word.
        typed = os.environ["COMP_WORDS"].split("\n")[int(os.environ["COMP_CWORD"]) :]
        is_quoted = typed[:1] != [] and typed[0][:1] in ("'", '"')
        is_word = is_quoted or item.type != "plain"
        return f"{item.type},{item.value if is_word else shlex.quote(item.value)}"


def offer() -> None:
    """Give all shells the completions of this module, if one of them asks now."""
    add_completion_class(_QuotingBash)


def complete_file(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    return [CompletionItem(begun, type="file")]


def complete_run(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Offer ``latest``, ids, names that only one run has, and files."""
    return [*complete_file(context, parameter, begun), *_runs(begun)]


def _runs(begun: str) -> Iterator[CompletionItem]:
    runs = paths.list_runs()
    if runs and paths.LATEST.startswith(begun):
        yield CompletionItem(paths.LATEST, help="the newest run")
    names = Counter(map(paths.run_name, runs)) if begun else Counter[str]()
    words = (*(path.stem for path in runs), *(name for name, count in names.items() if count == 1))
    yield from (CompletionItem(word) for word in dict.fromkeys(words) if word.startswith(begun))


def complete_process(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    from profd.cli.console import short_command
    from profd.daemon.tree.attachable import find_attachable

    found = ((str(one.pid), short_command(one.command)) for one in find_attachable())
    return [CompletionItem(pid, help=words) for pid, words in found if pid.startswith(begun)]


def complete_run_or_process(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    of_runs = complete_run(context, parameter, begun)
    return [*of_runs, *complete_process(context, parameter, begun)]


def complete_phase(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    from profd.daemon.analyze.phases import PHASES

    names = (phase.name for phase in PHASES)
    return [CompletionItem(name) for name in names if name.startswith(begun)]
