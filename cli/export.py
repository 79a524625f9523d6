"""`profd export`: the samples of a run in a format of another tool."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profd.cli.options import SelectionWords, run_argument, selection_options
from profd.daemon import paths
from profd.daemon.errors import OutputUnwritable, UsageError
from profd.daemon.render.outfile import write_whole
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    from profd.daemon.analyze.selection import Selection

FORMATS = {
    "collapsed": "a stack and its samples a line, as flame graph tools read it",
    "speedscope": "each thread in order of time, for speedscope",
    "svg": "a still flame graph",
    "pprof": "gzipped protobuf, for go tool pprof, Pyroscope, Parca",
    "perfetto": "one timeline of frames, phases, counters and events, for ui.perfetto.dev",
    "csv": "tidy tables, a folder of files",
    "parquet": "the same as Parquet",
}
_FILES = {
    "speedscope": ("profd.daemon.render.exports.speedscope", "speedscope"),
    "svg": ("profd.daemon.render.exports.svg", "flame_graph_svg"),
    "pprof": ("profd.daemon.render.exports.pprof", "pprof"),
    "perfetto": ("profd.daemon.render.exports.perfetto", "perfetto"),
}
"""The module and function of each format that is one file; imported when it is asked for."""
_TABLES = ("csv", "parquet")
_STDOUT = Path("-")
_OF_ALL_THREADS = (*_TABLES, "speedscope", "pprof", "perfetto")
"""Formats that tell threads apart, and so take all of them unless some are named."""


@click.command()
@run_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    required=True,
    help="; ".join(f"{name}: {what}" for name, what in FORMATS.items()) + ".",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, readable=False, allow_dash=True),
    metavar="FILE",
    help="Write to FILE, not to stdout (which `-` names, too); for csv and parquet the folder that the files go to.",
)
@click.option("--threads", is_flag=True, help="Of collapsed: take all threads, and put each stack under its thread.")
@click.option("--processes", is_flag=True, help="Of collapsed: the same by process.")
@selection_options
def command(run: str, form: str, output: Path | None, threads: bool, processes: bool, words: SelectionWords) -> None:
    """Write the samples of RUN for another tool, to stdout or to a file.

    Without a selection, collapsed and svg take the main threads of the training processes, the others all threads.
    """
    if (threads or processes) and form != "collapsed":
        raise UsageError("--threads and --processes are of the format collapsed", f"leave them out: {form} has both")
    with RunReader(paths.find_run(run)) as reader, reader.one_moment():
        selection = words.build(reader, main_threads=not (threads or processes or form in _OF_ALL_THREADS))
        if form in _TABLES:
            _write_tables(_tables(reader, selection, form), output)
        else:
            _write(_content(reader, selection, form, threads=threads, processes=processes), output)


def _content(reader: RunReader, selection: Selection, form: str, *, threads: bool, processes: bool) -> bytes:
    """Return what is to be written in a format that is one file."""
    if form == "collapsed":
        from profd.daemon.render.exports.collapsed import collapsed_lines

        lines = collapsed_lines(reader, selection, threads=threads, processes=processes)
        return "".join(f"{line}\n" for line in lines).encode()
    module, function = _FILES[form]
    content: bytes = getattr(importlib.import_module(module), function)(reader, selection)
    return content


def _tables(reader: RunReader, selection: Selection, form: str) -> Mapping[str, bytes]:
    """Return the files of a format that is a folder of tables, by name."""
    if form == "parquet":
        from profd.daemon.render.exports.parquetfiles import parquet_files

        return parquet_files(reader, selection)
    from profd.daemon.render.exports.csvfiles import csv_files

    return csv_files(reader, selection)


def _write(content: bytes, output: Path | None) -> None:
    if output is not None and output != _STDOUT:
        write_whole(output, content)
        return
    if content.startswith(b"\x1f\x8b") and sys.stdout.isatty():
        raise UsageError("the format is not text", "write it to a file with -o FILE, or into a pipe")
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _write_tables(files: Mapping[str, bytes], folder: Path | None) -> None:
    if folder is None or folder == _STDOUT:
        raise UsageError("the format is several files", "name a folder for them with -o FOLDER")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputUnwritable(
            f"cannot make the folder {folder} ({error.strerror})", "choose another place with -o FOLDER"
        ) from error
    for name, content in files.items():
        write_whole(folder / name, content)
        click.echo(folder / name)
