"""`profd summary`: where the time of a run went, as text or JSON."""

from __future__ import annotations

import click
import msgspec

from profd.cli.options import SelectionWords, json_option, run_argument, selection_options
from profd.daemon import paths
from profd.daemon.analyze.summary import summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader


@click.command()
@run_argument
@selection_options
@json_option
def command(run: str, words: SelectionWords, as_json: bool) -> None:
    """Say where the time of RUN went: phases, hot functions, processes, coverage and cost."""
    with RunReader(paths.find_run(run)) as reader, reader.one_moment():
        summary = summarize(reader, words.build(reader))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(summary), indent=2))
    else:
        click.echo(summary_text(summary))
