"""`profd summary`: where the time of a run went, as text or JSON."""

from __future__ import annotations

import click

from profd.cli.console import print_json
from profd.cli.options import SelectionWords, job_option, json_option, run_argument, selection_options
from profd.cli.runs import open_run
from profd.daemon.render.summary import summarize
from profd.daemon.render.text import summary_text


@click.command()
@run_argument
@job_option
@selection_options
@json_option
def command(run: str, job: str | None, words: SelectionWords, as_json: bool) -> None:
    """Say where the time of RUN went: phases, hot functions, processes, coverage and cost.

    RUN may be a folder with the run files of all nodes of a job, or the URL of a file or folder.
    """
    with open_run(run, job) as reader, reader.one_moment():
        summary = summarize(reader, words.build(reader))
    if as_json:
        print_json(summary)
    else:
        click.echo(summary_text(summary))
