"""`profd report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from profd.cli.options import job_option, run_argument
from profd.cli.runs import brought_here, folder_of, open_run
from profd.daemon import paths
from profd.daemon.render.plaintext import visible
from profd.daemon.render.report import write_report


@click.command(short_help="Write a self-contained HTML report of a run.")
@run_argument
@job_option
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
              help="Write to FILE [default: <id>.html in the current folder].")  # fmt: skip
def command(run: str, job: str | None, output: Path | None) -> None:
    """Write a report of RUN as one HTML file, which opens anywhere and needs no network.

    The path of the file is printed. A live run may be reported too: as far as it has come. RUN may be a folder with the
    run files of all nodes of a job, or the URL of a file or folder.
    """
    with brought_here(run) as here:
        folder = folder_of(here, job)
        # Named after the file, not by what stands in it: a file from elsewhere could say ../../anything.
        name = paths.find_run(here).stem if folder is None else paths.clean_name(job or folder.absolute().name)
        path = output or Path(f"{name}.html")
        with open_run(here, job) as reader:
            write_report(reader, path)
    click.echo(visible(str(path)))
