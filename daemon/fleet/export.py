"""Writes a run into a data set: its Parquet files first, then the manifest that makes them count."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from profd.daemon.errors import OutputUnwritable
from profd.daemon.exports.tables import Value, parquet_schema
from profd.daemon.fleet.dataset import TABLES, VERSION, DataFile, DataSet, Manifest, Partition, date_of, encoded
from profd.daemon.fleet.tables import ROWS, Source
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    import pyarrow

_BATCH = 16_384


def schema_of(table: str) -> pyarrow.Schema:
    """Return the schema of a table; raises MissingTool where pyarrow is not installed."""
    return parquet_schema(TABLES[table], "fleet", {"profd.version": str(VERSION)})


def empty_file(table: str, path: Path) -> Path:
    schema = schema_of(table)
    from pyarrow import parquet

    parquet.write_table(schema.empty_table(), path)
    return path


class PartitionFile:
    """A Parquet file of one table that is being written to a local path."""

    def __init__(self, table: str, path: Path) -> None:
        from pyarrow import parquet

        self.path = path
        self.rows = 0
        self._schema = schema_of(table)
        # A dictionary that grows beyond the limit is given up for the whole column, and stacks are long.
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd", dictionary_pagesize_limit=1 << 26)
        self._batch: list[tuple[Value, ...]] = []

    def add(self, values: tuple[Value, ...]) -> None:
        self._batch.append(values)
        self.rows += 1
        if len(self._batch) >= _BATCH:
            self._flush()

    def close(self) -> None:
        """Write what is left, and end the file."""
        if self._batch:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow

        columns = dict(zip(self._schema.names, zip(*self._batch, strict=True), strict=True))
        self._writer.write_table(pyarrow.Table.from_pydict(columns, schema=self._schema))
        self._batch.clear()


def export_run(reader: RunReader, data: DataSet) -> Manifest:
    """Write a run into a data set, in the place of its earlier exports, and return its manifest.

    Raises MissingTool without pyarrow, OutputUnwritable, and RunUnreadable where the run or the data set is damaged.
    """
    schema_of("samples")  # before anything is read that would be of no use without pyarrow
    source, info = Source(reader), reader.info
    before = data.manifest(source.run)
    try:
        with tempfile.TemporaryDirectory(prefix="profd-") as folder:
            files: dict[tuple[str, Partition], PartitionFile] = {}
            for table, rows in ROWS.items():
                complete = len(files)
                for row in rows(source):
                    key = (table, Partition(date_of(row.at_ns), info.name, info.host, row.rank))
                    if key not in files:
                        files[key] = PartitionFile(table, Path(folder) / str(len(files)))
                    files[key].add(row.values)
                for file in list(files.values())[complete:]:
                    file.close()
            written = [(*key, file.path, file.rows) for key, file in files.items()]
            manifest = place_files(data, source.run, (info.started_ns, info.end_ns), written, Path(folder))
    except OSError as error:
        raise OutputUnwritable(
            f"cannot write temporary files ({error.strerror})", "set TMPDIR to a folder with space"
        ) from error
    now = {file.path for file in manifest.files}
    earlier = set() if before is None else {file.path for file in before.files}
    # Exports that failed left files too.
    folders = sorted({path.rpartition("/")[0] for path in now})
    data.remove({*earlier, *data.leftovers(folders, f"{encoded(manifest.run)}-")} - now)
    return manifest


def place_files(
    data: DataSet, run: str, between: tuple[int, int], files: Iterable[tuple[str, Partition, Path, int]], folder: Path
) -> Manifest:
    """Put the files of a run, each with its table, partition and rows, into a data set, and make them count.

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
