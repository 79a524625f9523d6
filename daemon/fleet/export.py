"""Writes a run into a data set: its Parquet files first, then the manifest.

The manifest makes the files count.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profd.daemon.errors import OutputUnwritable
from profd.daemon.exports.tables import ParquetFile, parquet_schema
from profd.daemon.fleet.dataset import (
    TABLES,
    VERSION,
    DataFile,
    DataSet,
    Manifest,
    Partition,
    date_of,
    encoded,
)
from profd.daemon.fleet.tables import ROWS, RunSource
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    import pyarrow


def schema_of(table: str) -> pyarrow.Schema:
    """Return the schema of a table; raises MissingTool if pyarrow is not installed."""
    return parquet_schema(TABLES[table], "fleet", {"profd.version": str(VERSION)})


def empty_file(table: str, path: Path) -> Path:
    schema = schema_of(table)
    from pyarrow import parquet

    parquet.write_table(schema.empty_table(), path)
    return path


def export_run(reader: RunReader, data: DataSet) -> Manifest:
    """Write a run into a data set, in the place of its earlier exports, and return its manifest.

    Raises MissingTool without pyarrow, OutputUnwritable, and RunUnreadable if the run or the data
    set is damaged.
    """
    schema_of("samples")  # before anything is read that would be of no use without pyarrow
    source, info = RunSource(reader), reader.info
    before = data.manifest(source.run)
    try:
        with tempfile.TemporaryDirectory(prefix="profd-") as folder:
            written = list(_write_tables(source, Path(folder)))
            manifest = place_files(
                data, source.run, (info.started_ns, info.end_ns), written, Path(folder)
            )
    except OSError as error:
        what, remedy = "cannot write temporary files", "set TMPDIR to a folder with space"
        raise OutputUnwritable.of_system(what, error, remedy) from error
    now = {file.path for file in manifest.files}
    earlier = set() if before is None else {file.path for file in before.files}
    # Exports that failed left files too.
    folders = sorted({path.rpartition("/")[0] for path in now})
    data.remove({*earlier, *data.leftovers(folders, f"{encoded(manifest.run)}-")} - now)
    return manifest


def _write_tables(source: RunSource, folder: Path) -> Iterator[tuple[str, Partition, Path, int]]:
    """Write the rows of a run, and yield each file with its table, partition and rows."""
    info = source.reader.info
    for table, rows in ROWS.items():
        files: dict[Partition, tuple[Path, ParquetFile]] = {}
        for row in rows(source):
            partition = Partition(date_of(row.at_ns), info.name, info.host, row.rank)
            if partition not in files:
                path = folder / f"{table}-{len(files)}"
                files[partition] = path, ParquetFile(schema_of(table), path, 16_384)
            files[partition][1].add(row.values)
        for partition, (path, file) in files.items():
            file.close()
            yield table, partition, path, file.rows


def place_files(
    data: DataSet,
    run: str,
    between: tuple[int, int],
    files: Iterable[tuple[str, Partition, Path, int]],
    folder: Path,
) -> Manifest:
    """Put files, each with table, partition and rows, into a data set as a run.

    ``folder`` is for temporary files.
    """
    export = secrets.token_hex(4)
    placed = []
    for table, partition, source, rows in files:
        path = f"{table}/{partition.path}/{encoded(run)}-{export}.parquet"
        data.put(path, source)
        placed.append(DataFile(table, path, rows, source.stat().st_size))
    manifest = Manifest(VERSION, run, *between, tuple(placed))
    data.commit(manifest, folder / "manifest.json")
    return manifest
