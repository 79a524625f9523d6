"""`profd view`: the dashboard on a live or finished run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from profd.cli.options import job_option, run_argument
from profd.cli.runs import brought_here, folder_of, known_folder
from profd.daemon import paths
from profd.daemon.errors import UsageError
from profd.daemon.render.plaintext import aligned
from profd.daemon.store.reader import RunReader


@click.command(short_help="Open the dashboard on a live or finished run.")
@run_argument
@job_option
@click.option("--pty-fd", type=click.IntRange(min=0), hidden=True)
def command(run: str, job: str | None, pty_fd: int | None) -> None:
    """Open the dashboard on RUN, live or finished.

    Leaving it changes nothing: a live run is recorded on until its script ends, or `profd stop` ends the recording. RUN
    may be a folder with the run files of all nodes of a job: they are listed, and of several one is chosen. It may be
    the URL of a file or folder, too.
    """
    with brought_here(run) as here:
        folder = folder_of(here, job)
        run_file = paths.find_run(here) if folder is None else _chosen(folder, job)
        RunReader(run_file).close()  # what is no run is that first, with a terminal and without
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError("the dashboard needs a terminal", f"`profd summary {run}` says the same as text")
        # Here and not above: `profd --help` and every other command do without Textual.
        from profd.tui.app import run_dashboard

        run_dashboard(run_file, pty_fd=pty_fd, may_end=False)


def _chosen(folder: Path, job: str | None) -> Path:
    """Return the run file of the node that is chosen from a list; raises UsageError where nobody can choose."""
    files = known_folder(folder).choose(job).files
    if len(files) == 1:
        return files[0].path
    rows = [
        (str(number), file.host, ", ".join(map(str, sorted(file.ranks))), str(file.path))
        for number, file in enumerate(files)
    ]
    click.echo(aligned(("node", "host", "ranks", "file"), rows, right=("node",)))
    if not sys.stdin.isatty():
        raise UsageError(f"{folder} holds {len(files)} nodes of one job", "name one of the files above")
    chosen: int = click.prompt("Which node", type=click.IntRange(0, len(files) - 1), default=0, err=True)
    return files[chosen].path
