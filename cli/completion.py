"""What a shell offers for a word that is being typed: runs, processes, phases, files."""

from __future__ import annotations

import os
import shlex

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from profd.daemon import paths


class _QuotingBash(BashComplete):
    """Completes words with blanks as one word, which bash leaves to the program."""

    name = "bash"

    def format_completion(self, item: CompletionItem) -> str:
        # The words come a line each; within a quote that the user has opened all is one word.
        typed = os.environ["COMP_WORDS"].split("\n")[int(os.environ["COMP_CWORD"]) :]
        if item.type == "plain" and not "".join(typed).startswith(("'", '"')):
            item.value = shlex.quote(item.value)
        return super().format_completion(item)


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
    """Offer ``latest``, the ids of runs, and files; for the name of one run its id."""
    named = [path.stem for path in paths.runs_named(begun)]
    words = [word for word in (paths.LATEST, *named) if word.startswith(begun)]
    if not words and len(named) == 1:
        words = named
    return [*complete_file(context, parameter, begun), *map(CompletionItem, words)]


def complete_process(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    from profd.cli.console import short_command
    from profd.daemon.tree.attachable import find_attachable

    found = ((str(one.pid), short_command(one.command)) for one in find_attachable())
    return [CompletionItem(pid, help=words) for pid, words in found if pid.startswith(begun)]


def complete_target(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Offer runs and processes."""
    runs = complete_run(context, parameter, begun)
    return [*runs, *complete_process(context, parameter, begun)]


def complete_phase(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    from profd.daemon.analyze.phases import PHASES

    names = (phase.name for phase in PHASES)
    return [CompletionItem(name) for name in names if name.startswith(begun)]
