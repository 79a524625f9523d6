"""`profd summary`: how a run spent its time, as text or JSON."""

from __future__ import annotations

import sys

import click

from profd.cli.console import line_cells, print_json
from profd.cli.options import job_option, json_option, run_argument, selection_options
from profd.cli.runs import code_of, open_run
from profd.daemon.api.selectors import Selectors


@click.command()
@run_argument()
@job_option
@selection_options
@json_option
def command(run: str, job: str | None, words: Selectors, as_json: bool) -> int:
    """Say where the time of RUN went: phases, hot functions, processes, coverage and cost.

    RUN may be a folder with the run files of all nodes of a job, or the URL of a file or folder.
    """
    from profd.daemon.api.run import Run
    from profd.daemon.render.text import summary_text

    with open_run(run, job) as reader:
        taken = Run(reader).summary(**words)
        code = code_of(reader, says_why=False)
    if as_json:
        print_json(taken)
    else:
        click.echo(summary_text(taken, line_cells(sys.stdout)))
    return code
