"""`profd summary`, `profd report` and `profd view`: how a run spent its time.

They show it as text, JSON, HTML or dashboard. Each imports its own output modules, because the
others do not need them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from profd.cli.console import print_json
from profd.cli.options import (
    SelectionWords,
    job_option,
    json_option,
    run_argument,
    selection_options,
)
from profd.cli.runs import brought_here, code_of, find_run, folder_of, known_folder, open_run
from profd.daemon import paths
from profd.daemon.errors import UsageError
from profd.daemon.launch.terminal import can_move_cursor
from profd.daemon.render.plaintext import aligned, visible
from profd.daemon.store.reader import RunReader


@click.command()
@run_argument
@job_option
@selection_options
@json_option
def summary(run: str, job: str | None, words: SelectionWords, as_json: bool) -> int:
    """Say where the time of RUN went: phases, hot functions, processes, coverage and cost.

    RUN may be a folder with the run files of all nodes of a job, or the URL of a file or folder.
    """
    from profd.daemon.render.summary import summarize
    from profd.daemon.render.text import summary_text

    with open_run(run, job) as reader, reader.one_moment():
        taken = summarize(reader, words.build(reader))
        code = code_of(reader, says_why=False)
    if as_json:
        print_json(taken)
    else:
        click.echo(summary_text(taken))
    return code


@click.command(short_help="Write a self-contained HTML report of a run.")
@run_argument
@job_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to FILE [default: <id>.html in the current folder].",
)
def report(run: str, job: str | None, output: Path | None) -> int:
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
            find_run(here).stem
            if folder is None
            else paths.clean_name(job or folder.absolute().name)
        )
        path = output or Path(f"{name}.html")
        with open_run(here, job) as reader:
            write_report(reader, path)
            code = code_of(reader)
    click.echo(visible(str(path)))
    return code


@click.command(short_help="Open the dashboard on a live or finished run.")
@run_argument
@job_option
@click.option("--keys-fd", type=click.IntRange(min=0), hidden=True)
def view(run: str, job: str | None, keys_fd: int | None) -> None:
    """Open the dashboard on RUN, live or finished.

    Leaving it changes nothing: a live run is recorded on until its script ends, or `profd stop`
    ends the recording. RUN may be a folder with the run files of all nodes of a job: they are
    listed, and of several one is chosen. It may be the URL of a file or folder, too.
    """
    with brought_here(run) as here:
        folder = folder_of(here, job)
        run_file = find_run(here) if folder is None else _chosen(folder, job)
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
    files = known_folder(folder).choose(job).files
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
