"""`profd view`: the dashboard of a live or finished run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from profd.cli.console import say
from profd.cli.options import job_option, run_argument
from profd.daemon.api.opening import brought_here, find_run, folder_of, known_folder
from profd.daemon.errors import UsageError
from profd.daemon.launch.terminal import can_move_cursor
from profd.daemon.render.plaintext import aligned
from profd.daemon.store.reader import RunReader


@click.command()
@run_argument()
@job_option
@click.option("--keys-fd", type=click.IntRange(min=0), hidden=True)
def command(run: str, job: str | None, keys_fd: int | None) -> None:
    """Open the dashboard on RUN, live or finished.

    Leaving it changes nothing: a live run is recorded on until its script ends, or `profd stop`
    ends the recording. RUN may be a folder with the run files of all nodes of a job: they are
    listed, and of several one is chosen. It may be the URL of a file or folder, too.
    """
    with brought_here(run) as here:
        folder = folder_of(here, job)
        run_file = find_run(here, say) if folder is None else _chosen(folder, job)
        RunReader(run_file).close()  # a file that is no run fails here, with and without a terminal
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError(
                "the dashboard needs a terminal", f"`profd summary {run}` says the same as text"
            )
        if not can_move_cursor():
            what = (
                "the dashboard needs a terminal that can move its cursor, and TERM is "
                f"{os.environ.get('TERM')}"
            )
            raise UsageError(what, f"`profd summary {run}` says the same as text")
        from profd.tui.app import run_dashboard

        run_dashboard(run_file, keys_fd=keys_fd, may_end=False)


def _chosen(folder: Path, job: str | None) -> Path:
    """Return the run file of the node that the user chooses from a list.

    Raises UsageError if nobody can choose.
    """
    files = known_folder(folder, say).choose(job).files
    if len(files) == 1:
        return files[0].path
    ranks = [", ".join(map(str, sorted(file.ranks))) for file in files]
    rows = [(str(node), one.host, ranks[node], str(one.path)) for node, one in enumerate(files)]
    click.echo(aligned(("node", "host", "ranks", "file"), rows, right=("node",)))
    if not sys.stdin.isatty():
        raise UsageError(
            f"{folder} holds {len(files)} nodes of one job", "name one of the files above"
        )
    chosen: int = click.prompt(
        "Which node", type=click.IntRange(0, len(files) - 1), default=0, err=True
    )
    return files[chosen].path
