"""Rows of tables as Parquet files, one for each partition, written beside each other as they come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from profd.daemon.errors import MissingTool
from profd.daemon.fleet.layout import TABLES, VERSION, Partition

if TYPE_CHECKING:
    import pyarrow

    from profd.daemon.render.exports.tidytables import Value

ROW_GROUP = 1 << 17
"""Rows that are read together: so few that two threads share a file."""
_BATCH = 16_384


def schema_of(table: str) -> pyarrow.Schema:
    """Return the schema of a table; raises MissingTool where pyarrow is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise MissingTool("Parquet needs pyarrow, not installed here", "pip install 'profd[fleet]'") from None
    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string(), bool: pyarrow.bool_()}
    fields = [(column, types[kind]) for column, kind in TABLES[table].items()]
    return pyarrow.schema(fields, metadata={"profd.version": str(VERSION)})


def empty_file(table: str, path: Path) -> Path:
    """Write a table without rows, and return its path."""
    schema = schema_of(table)
    from pyarrow import parquet

    parquet.write_table(schema.empty_table(), path)
    return path


class PartitionFile:
    """A Parquet file of one table and partition that is being written to a local path."""

    def __init__(self, table: str, partition: Partition, path: Path, schema: pyarrow.Schema | None = None) -> None:
        """Begin a file; ``schema`` is the table's, unless columns come in another form, as dictionaries for one."""
        from pyarrow import parquet

        self.table = table
        self.partition = partition
        self.path = path
        self.rows = 0
        self._schema = schema or schema_of(table)
        # A dictionary that grows beyond the limit is given up for the whole column, and stacks are long.
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd", dictionary_pagesize_limit=1 << 26)
        self._batch: list[tuple[Value, ...]] = []

    def add(self, values: tuple[Value, ...]) -> None:
        """Add a row."""
        self._batch.append(values)
        self.rows += 1
        if len(self._batch) >= _BATCH:
            self._flush()

    def write(self, table: pyarrow.Table) -> None:
        """Add many rows at once, whose columns are those of the schema."""
        self.rows += table.num_rows
        self._writer.write_table(table, row_group_size=ROW_GROUP)

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
