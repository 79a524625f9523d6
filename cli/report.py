"""`profd report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from profd.cli.options import run_argument
from profd.daemon import paths
from profd.daemon.render.report import write_report
from profd.daemon.store.reader import RunReader


@click.command(short_help="Write a self-contained HTML report of a run.")
@run_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to FILE [default: <id>.html in the current folder].",
)
def command(run: str, output: Path | None) -> None:
    """Write a report of RUN as one HTML file, which opens anywhere and needs no network.

    The path of the file is printed. A live run may be reported too: as far as it has come.
    """
    run_file = paths.find_run(run)
    # Named after the file, not by what stands in it: a file from elsewhere could say ../../anything.
    path = output or Path(f"{run_file.stem}.html")
    with RunReader(run_file) as reader:
        write_report(reader, path)
    click.echo(path)
