"""The formats to which a run can be exported, each one file or a folder.

The simplest format, collapsed stacks, is made here. Its numbers are samples as they were taken; the
summary has shares of time.
"""

from __future__ import annotations

import functools
import importlib
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from profd.daemon.analyze.profile import selected_totals
from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import OutputUnwritable
from profd.daemon.paths import write_whole
from profd.daemon.render.plaintext import visible
from profd.daemon.store.reader import RunReader


class Format(NamedTuple):
    """A format: a short description, the ending of its file or folder, and its function.

    ``maker`` names the function that makes it, with its module. ``of_all_threads`` is set if
    threads stay apart, so that all of them are taken unless some are named.
    """

    what: str
    ending: str
    maker: str
    is_folder: bool = False
    of_all_threads: bool = True
    has_samples: bool = True

    def made(self, reader: RunReader, selection: Selection, **options: bool) -> Any:  # noqa: ANN401  a file or several
        """Return the content of the file, or of each file of the folder by its name."""
        module, function = self.maker.split(".")  # imported when it is used
        maker = getattr(importlib.import_module(f"profd.daemon.exports.{module}"), function)
        return maker(reader, selection, **options)


FORMATS = {
    "collapsed": Format(
        "a stack and its samples a line, as flame graph tools read it",
        ".collapsed.txt",
        "formats.collapsed",
        of_all_threads=False,
    ),
    "speedscope": Format(
        "each thread in order of time, for speedscope", ".speedscope.json", "speedscope.speedscope"
    ),
    "svg": Format("a still flame graph", ".svg", "svg.flame_graph_svg", of_all_threads=False),
    "pprof": Format(
        "gzipped protobuf, for go tool pprof, Pyroscope, Parca", ".pb.gz", "pprof.pprof"
    ),
    "perfetto": Format(
        "one timeline of frames, phases, counters, events, operators and kernels, for "
        "ui.perfetto.dev",
        ".perfetto-trace",
        "perfetto.perfetto",
    ),
    "csv": Format("tidy tables, a folder of files", "-csv", "tables.csv_files", is_folder=True),
    "parquet": Format("the same as Parquet", "-parquet", "tables.parquet_files", is_folder=True),
    "tensorboard": Format(
        "the traces of the last windows, a folder of .pt.trace.json files, for TensorBoard and HTA",
        "-tensorboard",
        "tensorboard.tensorboard_files",
        is_folder=True,
        has_samples=False,
    ),
}


def write_tables(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write tables into a folder, created if it is missing; raises OutputUnwritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot make the folder {folder}"
        raise OutputUnwritable.of_system(what, error, "choose another place for it") from error
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]


def collapsed(
    reader: RunReader, selection: Selection, *, threads: bool = False, processes: bool = False
) -> bytes:
    lines = collapsed_lines(reader, selection, threads=threads, processes=processes)
    return "".join(f"{line}\n" for line in lines).encode()


def collapsed_lines(
    reader: RunReader, selection: Selection, *, processes: bool = False, threads: bool = False
) -> Iterator[str]:
    """Yield ``frame;frame;frame N`` from root to leaf for every stack of a selection.

    The lines come in alphabetical order. ``processes`` and ``threads`` put a frame for each process
    and thread in front, as py-spy's options --subprocesses and --threads do. The numbers add up to
    the samples of the selection. No line ends in a newline.
    """

    @functools.cache
    def root(thread: int) -> list[str]:
        row = reader.threads[thread]
        process = reader.processes[row.process]
        found = [f'process {process.pid}:"{shlex.join(process.command)}"'] if processes else []
        found += [f"thread ({row.os_tid}): {row.name}"] if threads else []
        return list(map(_safe, found))

    @functools.cache
    def labels(stack: int) -> list[str]:
        return [_safe(frame.label) for frame in reader.frames_of(stack)]

    counted: Counter[str] = Counter()
    for total in selected_totals(reader, selection):
        counted[";".join(root(total.thread) + labels(total.stack))] += total.samples
    for stack_text, samples in sorted(counted.items()):
        yield f"{stack_text} {samples}"


def _safe(label: str) -> str:
    """Return a label that ends neither the frame nor the line, and does nothing to a terminal."""
    return visible(label).replace(";", ":")
