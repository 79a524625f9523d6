"""`profd diff`: what changed from one run to another."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from profd.cli.completion import complete_run
from profd.cli.console import line_cells, print_json, say
from profd.cli.options import json_option, output_option, run_argument, selection_options
from profd.cli.runs import code_of, open_run
from profd.daemon.api.selectors import Selectors, select
from profd.daemon.compare.diff import ALIKE, parse_limit, take_compared, take_diff
from profd.daemon.compare.readings import LEAST
from profd.daemon.errors import ExitCode
from profd.daemon.findings.catalog import answered
from profd.daemon.paths import write_whole
from profd.daemon.render.difftext import diff_text


@click.command(
    epilog="Two runs by their ids: profd diff ID latest. Two minutes of one run: profd diff latest "
    "--to 60 --new-from 60 --new-to 120"
)
@click.argument("base", metavar="BASE", shell_complete=complete_run)
@run_argument("new", "[NEW]")
@click.option(
    "--fail-on",
    "limits",
    multiple=True,
    metavar="LIMIT",
    help="End with 76 where a change goes beyond LIMIT: 'step_time>+5%', 'phase:data wait>+10%', "
    "'function:NAME>+20%', 'memory:main>+10%', 'gpu:GPU 0, idle share>+10%', "
    "'operator:NAME>+5%'.",
)
@click.option(
    "--least",
    type=click.FloatRange(0, 100),
    default=100 * LEAST,
    metavar="PERCENT",
    help="Call nothing a change that is smaller than PERCENT of a step.",
)
@click.option(
    "--alike",
    type=click.FloatRange(0, 100),
    default=100 * ALIKE,
    metavar="PERCENT",
    help="Call it no change where all parts of a step take longer by up to PERCENT, as runs of "
    "one script do.",
)
@output_option("Write an HTML report to FILE too, with a flame graph of the differences.")
@selection_options
@click.option(
    "--new-from",
    metavar="TIME",
    help="Take other samples of NEW, from TIME on: so two ranges of one run are compared.",
)
@click.option("--new-to", metavar="TIME", help="Take samples of NEW before TIME.")
@json_option
def command(
    base: str,
    new: str,
    limits: tuple[str, ...],
    least: float,
    alike: float,
    output: Path | None,
    words: Selectors,
    new_from: str | None,
    new_to: str | None,
    as_json: bool,
) -> int:
    """Say what changed from the run BASE to the run NEW.

    This covers step time, lines, functions, phases, GPUs, memory and operators.

    The main threads of the training processes are compared, without the start-up; a step at a time
    where both runs tell their steps, else by shares. A selection applies to both runs, and
    --new-from and --new-to choose another range of time in NEW. The text
    goes to stdout; -o FILE writes a report. Either may be a folder with the run files of all nodes
    of a job, or the URL of a file or folder.
    """
    wanted = [parse_limit(text) for text in limits]
    words_of_new = words
    if new_from is not None or new_to is not None:
        words_of_new = {**words, "from_": new_from, "to": new_to}
    with (
        open_run(base, None) as first,
        open_run(new, None) as second,
        first.one_moment(),
        second.one_moment(),
    ):
        selections = select(first, words), select(second, words_of_new)
        parts = map(partial(answered, take_compared), (first, second), selections)
        diff = take_diff(*parts, least=least / 100, alike=alike / 100)
        if output is not None:
            from profd.daemon.render.diffreport import render_diff_report

            page = render_diff_report((first, second), selections, diff)
            write_whole(output, page.encode())
            say(f"wrote {output}")
        code = code_of(first, second)
    if as_json:
        print_json(diff)
    else:
        click.echo(diff_text(diff, line_cells(sys.stdout)))
    broken = [limit for limit in wanted if limit.is_broken_by(diff)]
    for limit in broken:
        say(f"beyond the limit {limit.text}")
    return ExitCode.BEYOND_LIMIT if broken else code
