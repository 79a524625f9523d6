"""`profd view`: the dashboard on a live or finished run."""

from __future__ import annotations

import sys

import click

from profd.cli.options import run_argument
from profd.daemon import paths
from profd.daemon.errors import UsageError
from profd.daemon.store.reader import RunReader


@click.command(short_help="Open the dashboard on a live or finished run.")
@run_argument
@click.option("--pty-fd", type=click.IntRange(min=0), hidden=True)
def command(run: str, pty_fd: int | None) -> None:
    """Open the dashboard on RUN, live or finished.

    Leaving it changes nothing: a live run is recorded on until its script ends, or `profd stop` ends the recording.
    """
    run_file = paths.find_run(run)
    RunReader(run_file).close()  # what is no run is that first, with a terminal and without
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("the dashboard needs a terminal", f"`profd summary {run}` says the same as text")
    # Here and not above: `profd --help` and every other command do without Textual.
    from profd.tui.app import run_dashboard

    run_dashboard(run_file, pty_fd=pty_fd, may_end=False)
