"""`profd export`: the samples of a run in a format of another tool."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from profd.cli.console import say
from profd.cli.options import job_option, output_option, run_argument, selection_options
from profd.cli.runs import code_of, open_run
from profd.daemon import paths
from profd.daemon.analyze.profile import selected_totals
from profd.daemon.analyze.selection import Selection, parse_time
from profd.daemon.api.opening import brought_here, find_run, folder_of, known_folder
from profd.daemon.api.selectors import Selectors, select
from profd.daemon.errors import ExitCode, UsageError
from profd.daemon.exports.formats import FORMATS, write_tables
from profd.daemon.render.plaintext import visible
from profd.daemon.store.reader import RunReader

_STDOUT = Path("-")


@click.command()
@run_argument()
@job_option
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    required=True,
    help="; ".join(f"{name}: {each.what}" for name, each in FORMATS.items()) + ".",
)
@output_option(
    "Write to FILE, not to stdout (which `-` names, too); for csv, parquet, tensorboard the folder "
    "of files."
)
@click.option(
    "--threads",
    is_flag=True,
    help="Of collapsed: take all threads, and put each stack under its thread.",
)
@click.option("--processes", is_flag=True, help="Of collapsed: the same by process.")
@selection_options
def command(
    run: str,
    job: str | None,
    form: str,
    output: Path | None,
    threads: bool,
    processes: bool,
    words: Selectors,
) -> int:
    """Write the samples of RUN for another tool, to stdout or to a file.

    Without a selection, collapsed and svg take the main threads of the training processes, the
    others all threads. `--format parquet --to URL` puts the whole run into the data set at URL, a
    folder or any fsspec URL, for `profd fleet`. RUN may be a folder with the run files of all nodes
    of a job, or the URL of a file or folder.
    """
    if (threads or processes) and form != "collapsed":
        raise UsageError(
            "--threads and --processes are of the format collapsed",
            f"leave them out: {form} has both",
        )
    to = FORMATS[form]
    with brought_here(run) as here:
        with open_run(here, job) as reader, reader.one_moment():
            is_data_set = form == "parquet" and output is None
            url = _data_set_url(reader, words.get("to")) if is_data_set else None
            if url is None:
                selection = select(
                    reader, words, main_threads=not (threads or processes or to.of_all_threads)
                )
                if to.is_folder:
                    folder = _as_folder(output)
                    for path in write_tables(to.made(reader, selection), folder):
                        click.echo(visible(str(path)))
                else:
                    options = (
                        {"threads": threads, "processes": processes} if form == "collapsed" else {}
                    )
                    _write(to.made(reader, selection, **options), output)
                return say_if_empty(reader, selection) if to.has_samples else ExitCode.OK
        if any(value not in (None, ()) for value in {**words, "to": None}.values()):
            raise UsageError("a data set has whole runs", "leave out what selects samples")
        return _put_into_data_set(here, job, url)


def _data_set_url(reader: RunReader, to: float | str | None) -> str | None:
    """Return where the data set is to be, which ``--to`` names if it names no time."""
    if to is None:
        return None
    try:
        parse_time(str(to), reader.info)
    except UsageError:
        return str(to)
    return None


def _as_folder(output: Path | None) -> Path:
    if output is None or output == _STDOUT:
        raise UsageError("the format is several files", "name a folder for them with -o FOLDER")
    return output


def _put_into_data_set(run: str, job: str | None, url: str) -> ExitCode:
    from profd.daemon.fleet.dataset import DataSet
    from profd.daemon.fleet.export import export_run

    folder = folder_of(run, job)
    files = (
        [file.path for file in known_folder(folder, say).choose(job).files]
        if folder
        else [find_run(run, say)]
    )
    codes = set()
    for path in files:
        with RunReader(path) as reader, reader.one_moment():
            manifest = export_run(reader, DataSet(url))
            codes.add(code_of(reader))
        say(f"put {manifest.samples:,} rows of samples of {manifest.run} into {url}")
    return min(codes, default=ExitCode.OK)  # a node without samples does not fail the job


def say_if_empty(reader: RunReader, selection: Selection) -> ExitCode:
    """Say that an export has no samples, if it has none, and why; return the exit code."""
    code = code_of(reader)
    if code == ExitCode.OK and not any(one.samples for one in selected_totals(reader, selection)):
        say("none of the run's samples are selected: the export has none")
    return code


def _write(content: bytes, output: Path | None) -> None:
    if output is not None and output != _STDOUT:
        paths.write_whole(output, content)
        return
    if content.startswith(b"\x1f\x8b") and sys.stdout.isatty():
        raise UsageError(
            "the format is not text", "write it to a file with -o FILE, or into a pipe"
        )
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
