"""`profd export`: the samples of a run in a format of another tool."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from profd.cli.options import SelectionWords, run_argument, selection_options
from profd.daemon import paths
from profd.daemon.render.collapsed import collapsed_lines
from profd.daemon.render.outfile import write_whole
from profd.daemon.store.reader import RunReader


@click.command()
@run_argument
@click.option(
    "--format",
    type=click.Choice(["collapsed"]),
    required=True,
    expose_value=False,
    help="collapsed: a stack and its samples a line, as flame graph tools read it.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, readable=False),
    metavar="FILE",
    help="Write to FILE, not to stdout.",
)
@click.option("--threads", is_flag=True, help="Take all threads, and put each stack under its thread.")
@click.option("--processes", is_flag=True, help="Take all threads, and put each stack under its process.")
@selection_options
def command(run: str, output: Path | None, threads: bool, processes: bool, words: SelectionWords) -> None:
    """Write the samples of RUN for another tool, to stdout or to a file.

    Without a selection these are the samples of the main threads of the training processes.
    """
    with RunReader(paths.find_run(run)) as reader, reader.one_moment():
        selection = words.build(reader, main_threads=not (threads or processes))
        lines = collapsed_lines(reader, selection, threads=threads, processes=processes)
        text = "".join(f"{line}\n" for line in lines)
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, text.encode())
