"""`profd fleet`: what many runs together say about lost hours, nodes, and what got slower."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path

import click

from profd.cli.completion import complete_file
from profd.cli.console import line_cells, print_json, say
from profd.cli.options import json_option, output_option
from profd.daemon.errors import ExitCode
from profd.daemon.paths import write_whole


@click.command()
@click.argument("url", metavar="URL", shell_complete=complete_file)
@click.option(
    "--memory",
    "memory_gb",
    type=click.FloatRange(0.1),
    default=2.0,
    metavar="GB",
    help="The most memory that DuckDB takes; what does not fit goes to temporary files.",
)
@click.option(
    "--days",
    type=click.IntRange(1),
    default=28,
    metavar="N",
    help="Take the last N days.",
)
@click.option(
    "--until",
    type=click.DateTime(),
    metavar="TIME",
    help="The end of the last day, in UTC [default: the end of the newest run].",
)
@click.option(
    "--least",
    type=click.FloatRange(0, 100),
    default=2.0,
    metavar="PERCENT",
    help="Call nothing slower that is so by less than PERCENT.",
)
@output_option("Write an HTML page to FILE too.")
@json_option
def command(
    url: str,
    memory_gb: float,
    days: int,
    until: datetime | None,
    least: float,
    output: Path | None,
    as_json: bool,
) -> int:
    """Report on all runs in the data set at URL.

    The report says hours lost by cause, what costs most, slow nodes, and what got slower.

    URL is a folder or any fsspec URL that `profd export RUN --format parquet --to URL` wrote to.
    """
    from profd.daemon.clock import SECOND_NS
    from profd.daemon.fleet.dataset import DataSet
    from profd.daemon.fleet.fleet import Question, ask
    from profd.daemon.fleet.output import fleet_text

    until_ns = (
        None if until is None else int(until.replace(tzinfo=timezone.utc).timestamp()) * SECOND_NS
    )
    question = Question(
        until_ns=until_ns, days=days, least=least / 100, memory_bytes=int(memory_gb * 1e9)
    )
    fleet = ask(DataSet(url), question)
    if output is not None:
        from profd.daemon.fleet.output import render_fleet_page

        write_whole(output, render_fleet_page(fleet).encode())
        say(f"wrote {output}")
    if as_json:
        print_json(fleet)
    else:
        click.echo(fleet_text(fleet, line_cells(sys.stdout)))
    if fleet.samples:
        return ExitCode.OK
    say("no samples were taken in any of the runs")
    return ExitCode.NO_SAMPLES
