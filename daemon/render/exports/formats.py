"""The formats that a run can be exported to, each with its module, which is imported when it is asked for.

A format is one file, or a folder of tables.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from profd.daemon.errors import OutputUnwritable
from profd.daemon.render.outfile import write_whole
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    from profd.daemon.analyze.selection import Selection

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
"""Formats that tell threads apart, and so take all of them unless some are named."""
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
_FILES = {
    "speedscope": ("profd.daemon.render.exports.speedscope", "speedscope"),
    "svg": ("profd.daemon.render.exports.svg", "flame_graph_svg"),
    "pprof": ("profd.daemon.render.exports.pprof", "pprof"),
    "perfetto": ("profd.daemon.render.exports.perfetto", "perfetto"),
}


def file_content(
    reader: RunReader, selection: Selection, form: str, *, threads: bool = False, processes: bool = False
) -> bytes:
    """Return what is to be written in a format that is one file; ``threads`` and ``processes`` are of collapsed."""
    if form == "collapsed":
        from profd.daemon.render.exports.collapsed import collapsed_lines

        lines = collapsed_lines(reader, selection, threads=threads, processes=processes)
        return "".join(f"{line}\n" for line in lines).encode()
    module, function = _FILES[form]
    content: bytes = getattr(importlib.import_module(module), function)(reader, selection)
    return content


def tables(reader: RunReader, selection: Selection, form: str) -> Mapping[str, bytes]:
    """Return the files of a format that is a folder, by name."""
    if form == "tensorboard":
        from profd.daemon.render.exports.tensorboard import tensorboard_files

        return tensorboard_files(reader, selection)
    if form == "parquet":
        from profd.daemon.render.exports.parquetfiles import parquet_files

        return parquet_files(reader, selection)
    from profd.daemon.render.exports.csvfiles import csv_files

    return csv_files(reader, selection)


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
