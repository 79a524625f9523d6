"""`profd report`: how a run spent its time, as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from profd.cli.console import say
from profd.cli.options import job_option, output_option, run_argument
from profd.cli.runs import code_of, open_run
from profd.daemon import paths
from profd.daemon.api.opening import brought_here, find_run, folder_of
from profd.daemon.render.plaintext import visible


@click.command()
@run_argument()
@job_option
@output_option("Write to FILE [default: <id>.html in the current folder].")
@click.option("--open", "opens", is_flag=True, help="Open it in your browser, too.")
def command(run: str, job: str | None, output: Path | None, opens: bool) -> int:
    """Write a report of RUN as one HTML file, which opens anywhere and needs no network.

    The path of the file is printed. A live run may be reported too: as far as it has come. RUN may
    be a folder with the run files of all nodes of a job, or the URL of a file or folder.
    """
    from profd.daemon.render.report import write_report

    with brought_here(run) as here:
        folder = folder_of(here, job)
        # Named after the file, not by what stands in it: a file from elsewhere could say
        # ../../anything.
        name = (
            find_run(here, say).stem
            if folder is None
            else paths.clean_name(job or folder.absolute().name)
        )
        path = output or Path(f"{name}.html")
        with open_run(here, job) as reader:
            write_report(reader, path)
            code = code_of(reader)
    click.echo(visible(str(path)))
    if opens:
        _show(path)
    return code


def _show(page: Path) -> None:
    """Open a page in the user's browser, or say where it lies if there is none."""
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        say(f"there is no browser here: open {page.absolute()} in one")
