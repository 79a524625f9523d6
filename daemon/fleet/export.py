"""Writes a run into a data set: its files first, then the manifest that makes them count, in place of older ones."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterable
from pathlib import Path

from profd.daemon.errors import OutputUnwritable
from profd.daemon.fleet.dataset import DataSet
from profd.daemon.fleet.layout import VERSION, DataFile, Manifest, Partition, date_of, encoded
from profd.daemon.fleet.parquet import PartitionFile, schema_of
from profd.daemon.fleet.tables import ROWS, Row, Source
from profd.daemon.store.reader import RunReader


def export_run(reader: RunReader, data: DataSet) -> Manifest:
    """Write a run into a data set, in the place of what was there of it, and return what is there now.

    Raises MissingTool without pyarrow, OutputUnwritable, and RunUnreadable where the run or the data set is damaged.
    """
    schema_of("samples")  # before anything is read that would be of no use without pyarrow
    source = Source(reader)
    before = data.manifest(source.run)
    try:
        with tempfile.TemporaryDirectory(prefix="profd-") as folder:
            files = _write(source, Path(folder))
            manifest = place_files(data, source.run, (reader.info.started_ns, reader.info.end_ns), files, Path(folder))
    except OSError as error:
        raise OutputUnwritable(
            f"cannot write temporary files ({error.strerror})", "set TMPDIR to a folder with space"
        ) from error
    data.remove(_superseded(data, manifest, before))
    return manifest


def place_files(
    data: DataSet, run: str, between: tuple[int, int], files: Iterable[PartitionFile], folder: Path
) -> Manifest:
    """Put the closed files of a run into a data set, and make them count; ``folder`` is for temporary files."""
    export = secrets.token_hex(4)
    placed = []
    for file in files:
        path = f"{file.table}/{file.partition.path}/{encoded(run)}-{export}.parquet"
        data.put(path, file.path)
        placed.append(DataFile(file.table, path, file.rows, file.path.stat().st_size))
    manifest = Manifest(VERSION, run, *between, tuple(placed))
    data.commit(manifest, folder / "manifest.json")
    return manifest


def _write(source: Source, folder: Path) -> list[PartitionFile]:
    """Write the tables of a run to local files."""
    written: list[PartitionFile] = []
    for table, rows in ROWS.items():
        files: dict[Partition, PartitionFile] = {}
        for row in rows(source):
            _file_of(files, table, _partition(source.reader, row), folder).add(row.values)
        for file in files.values():
            file.close()
        written += files.values()
    return written


def _file_of(files: dict[Partition, PartitionFile], table: str, partition: Partition, folder: Path) -> PartitionFile:
    if partition not in files:
        files[partition] = PartitionFile(table, partition, folder / f"{table}-{len(files)}")
    return files[partition]


def _partition(reader: RunReader, row: Row) -> Partition:
    return Partition(date_of(row.at_ns), reader.info.name, reader.info.host, row.rank)


def _superseded(data: DataSet, manifest: Manifest, before: Manifest | None) -> set[str]:
    """Return the files of earlier exports of a run, those of exports that failed among them."""
    now = {file.path for file in manifest.files}
    folders = {path.rpartition("/")[0] for path in now}
    known = set() if before is None else {file.path for file in before.files}
    return {*known, *data.leftovers(sorted(folders), f"{encoded(manifest.run)}-")} - now
