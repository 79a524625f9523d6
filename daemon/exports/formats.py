"""The formats that a run can be exported to, each one file or a folder, and the simplest of them, collapsed stacks.

The numbers of collapsed stacks are samples as they were taken; shares of time stand in the summary.
"""

from __future__ import annotations

import importlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from profd.daemon.analyze.profile import selected_totals
from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import OutputUnwritable
from profd.daemon.paths import write_whole
from profd.daemon.render.plaintext import visible
from profd.daemon.store.reader import RunReader

FORMATS = {
    "collapsed": "a stack and its samples a line, as flame graph tools read it",
    "speedscope": "each thread in order of time, for speedscope",
    "svg": "a still flame graph",
    "pprof": "gzipped protobuf, for go tool pprof, Pyroscope, Parca",
    "perfetto": "one timeline of frames, phases, counters, events, operators and kernels, for ui.perfetto.dev",
    "csv": "tidy tables, a folder of files",
    "parquet": "the same as Parquet",
    "tensorboard": "the traces of the last windows, a folder of .pt.trace.json files, for TensorBoard and HTA",
}
"""What there is, with a word on each."""
TABLES = ("csv", "parquet", "tensorboard")
"""The formats that are a folder."""
OF_ALL_THREADS = (*TABLES, "speedscope", "pprof", "perfetto")
"""Formats that keep threads apart, and so take all of them unless some are named."""
ENDINGS = {
    "collapsed": ".collapsed.txt",
    "speedscope": ".speedscope.json",
    "svg": ".svg",
    "pprof": ".pb.gz",
    "perfetto": ".perfetto-trace",
    "csv": "-csv",
    "parquet": "-parquet",
    "tensorboard": "-tensorboard",
}
"""What the name of a file or folder in a format ends with."""
_MAKERS = {
    "speedscope": ("speedscope", "speedscope"),
    "svg": ("svg", "flame_graph_svg"),
    "pprof": ("pprof", "pprof"),
    "perfetto": ("perfetto", "perfetto"),
    "csv": ("tables", "csv_files"),
    "parquet": ("tables", "parquet_files"),
    "tensorboard": ("tensorboard", "tensorboard_files"),
}
"""Module and function of each format; a module is imported when it is used."""


def file_content(
    reader: RunReader, selection: Selection, form: str, *, threads: bool = False, processes: bool = False
) -> bytes:
    """Return the content of a format that is one file; ``threads`` and ``processes`` are options of collapsed."""
    if form == "collapsed":
        lines = collapsed_lines(reader, selection, threads=threads, processes=processes)
        return "".join(f"{line}\n" for line in lines).encode()
    content: bytes = _maker(form)(reader, selection)
    return content


def tables(reader: RunReader, selection: Selection, form: str) -> Mapping[str, bytes]:
    """Return the files of a format that is a folder, by name."""
    files: Mapping[str, bytes] = _maker(form)(reader, selection)
    return files


def _maker(form: str) -> Callable[[RunReader, Selection], Any]:
    module, function = _MAKERS[form]
    maker: Callable[[RunReader, Selection], Any] = getattr(
        importlib.import_module(f"profd.daemon.exports.{module}"), function
    )
    return maker


def write_tables(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write tables into a folder, made where there is none; raises OutputUnwritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputUnwritable(
            f"cannot make the folder {folder} ({error.strerror})", "choose another place for it"
        ) from error
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]


def collapsed_lines(
    reader: RunReader, selection: Selection, *, processes: bool = False, threads: bool = False
) -> Iterator[str]:
    """Yield ``frame;frame;frame N`` from root to leaf for every stack of a selection, in alphabetical order.

    ``processes`` and ``threads`` put a frame for each process and thread in front, as py-spy's options --subprocesses
    and --threads do. The numbers add up to the samples of the selection. No line ends in a newline.
    """
    counted: Counter[str] = Counter()
    roots: dict[int, list[str]] = {}
    labels: dict[int, str] = {}
    for total in selected_totals(reader, selection):
        if total.thread not in roots:
            thread = reader.threads[total.thread]
            process = reader.processes[thread.process]
            found = [f'process {process.pid}:"{shlex.join(process.command)}"'] if processes else []
            found += [f"thread ({thread.os_tid}): {thread.name}"] if threads else []
            roots[total.thread] = list(map(_safe, found))
        frames = reader.frames_of(total.stack)
        for frame in frames:
            if frame.id not in labels:
                labels[frame.id] = _safe(frame.label)
        counted[";".join([*roots[total.thread], *(labels[frame.id] for frame in frames)])] += total.samples
    for stack_text, samples in sorted(counted.items()):
        yield f"{stack_text} {samples}"


def _safe(label: str) -> str:
    """Return a label that ends neither the frame nor the line, and does nothing to a terminal."""
    return visible(label).replace(";", ":")
