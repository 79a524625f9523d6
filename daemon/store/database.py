"""Opens and checks SQLite files: their errors, the schema, and bounds on the cost of a query.

A hostile file of some kilobytes can yield billions of rows, because many places in it may point to
one page. A sound file cannot: its size limits its rows, its text and the work of a query. So a
query ends when it exceeds these limits. They count rows, bytes and instructions rather than
seconds, because a busy machine reads a sound file slowly, too.

A view, a generated column or an index on an expression would run code of the file's author. Such a
file is refused.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from profd.daemon.errors import OutputUnwritable, RunUnreadable

# what the smallest row takes in its page: a pointer of two bytes, and four bytes of its own
LEAST_ROW_BYTES = 6
_COUNTED_AT_ONCE = 10_000
_BEST_COMPRESSION = 16  # of a file system
_NOT_YET_ON_DISK = 8 << 20  # ZFS counts blocks some seconds after they were written


class BoundedConnection(sqlite3.Connection):
    """A connection to a file that may be hostile.

    Call ``bound`` before the first query.
    """

    _path: Path
    _work = _most_work = _most_rows = _most_text_bytes = 0

    def bound(self, path: Path) -> None:
        """Bound the cost of each query by the size of this file, which may grow."""
        self._path = path
        self._measure()
        self.set_progress_handler(self._is_too_much_work, _COUNTED_AT_ONCE)

    def rows(
        self, sql: str, values: Sequence[float | str | None] | Mapping[str, int] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query.

        Raises sqlite3.Error, also if there are more rows than a sound file can hold.
        """
        self._work = text_bytes = 0
        found: list[tuple[Any, ...]] = []
        most_rows, most_text_bytes = self._most_rows, self._most_text_bytes
        try:
            for row in self.execute(sql, values):
                found.append(row)
                for value in row:
                    if type(value) is str or type(value) is bytes:
                        text_bytes += len(value)
                if len(found) > most_rows or text_bytes > most_text_bytes:
                    self._measure()  # the file may have grown
                    most_rows, most_text_bytes = self._most_rows, self._most_text_bytes
                    if len(found) > most_rows or text_bytes > most_text_bytes:
                        raise sqlite3.DatabaseError("it gives more than its size accounts for")
        except sqlite3.OperationalError as error:
            if self._work > self._most_work:
                raise sqlite3.DatabaseError(
                    "it takes more work than its size accounts for"
                ) from error
            raise
        return found

    def _is_too_much_work(self) -> bool:
        self._work += _COUNTED_AT_ONCE
        if self._work > self._most_work:
            self._measure()
        return self._work > self._most_work

    def _measure(self) -> None:
        size = honest_size(self._path)
        # Instructions of SQLite's virtual machine; profd's own queries take one or two per byte.
        self._most_work = size * 30 + 1_000_000
        self._most_rows = size // LEAST_ROW_BYTES + 1000
        self._most_text_bytes = size + (1 << 20)


def honest_size(path: Path) -> int:
    """Return the bytes of a run file and its log that the disk really holds.

    A sparse file may claim any size.
    """
    size = 0
    for name in (os.fspath(path), f"{path}-wal"):
        with contextlib.suppress(OSError):
            found = os.stat(name)  # noqa: PTH116  Path raises for long names
            size += min(found.st_size, found.st_blocks * 512 * _BEST_COMPRESSION + _NOT_YET_ON_DISK)
    return size


# The statements that create the tables of a new run file. They have no comments, because each file
# stores the text and each reader parses it.
TEXT = re.sub(r" *--.*", "", Path(__file__).with_name("schema.sql").read_text())
_ENTRIES = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
_COLUMNS = "SELECT name, type, pk, hidden, dflt_value FROM pragma_table_xinfo(?)"
_INDEX_COLUMNS = "SELECT name FROM pragma_index_xinfo(?) WHERE key"


def _check_schema(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if a file has something that no run file has.

    An older file may lack tables.
    """
    tables, indexes = _own_schema()
    for kind, name, table, text in connection.execute(_ENTRIES).fetchall():
        if kind == "index" and text is None:  # SQLite's own, of a primary key or UNIQUE
            is_own = table in tables
        elif kind == "index":
            # The name is NULL for an expression; a partial index would have a WHERE in its text.
            columns = connection.execute(_INDEX_COLUMNS, (name,)).fetchall()
            is_own = indexes.get(name) == (table, columns) and " WHERE " not in str(text).upper()
        elif kind == "table" and name in tables and str(text).startswith("CREATE TABLE "):
            is_own = tables[name].issuperset(connection.execute(_COLUMNS, (name,)))
        else:
            # The text of a virtual table shows what it is. It is never queried, as that would call
            # its module.
            is_own = False
        if not is_own:
            raise sqlite3.DatabaseError(f"its {kind} {name} is none that a run file has")


@functools.cache
def _own_schema() -> tuple[dict[str, frozenset[Any]], dict[str, tuple[str, list[Any]]]]:
    """Return the columns of each table of a new file, and its indexes by name.

    Each index comes with its table and columns.
    """
    tables, indexes = {}, {}
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TEXT)
        for kind, name, table, text in connection.execute(_ENTRIES).fetchall():
            if kind == "table":
                tables[name] = frozenset(connection.execute(_COLUMNS, (name,)))
            elif text is not None:
                indexes[name] = table, connection.execute(_INDEX_COLUMNS, (name,)).fetchall()
    return tables, indexes


APPLICATION_ID = (
    0x70726664  # "prfd", so that file(1) and profd can tell a run file from any other database
)
SCHEMA_VERSION = 1
_LOG_VERSIONS = slice(18, 20)  # of the header: 2 and 2 if the file has a write-ahead log
_HEADER = struct.Struct(
    ">16sHBBBBBBII"
)  # SQLite's file header up to the size of the database in pages
_SEE_RUNS = "see `profd ls` for the runs there are"
LOCK_TIMEOUT_S = 1.0  # how long a statement waits while another process has locked the file
# SQLITE_BUSY, _LOCKED, _NOMEM, _READONLY, _IOERR, _FULL, _CANTOPEN, _PROTOCOL, without the details
# in the upper bytes.
_READ_ONLY, _CANNOT_OPEN = 8, 14
_PASSING = frozenset({5, 6, 7, 8, 10, 13, 14, 15})


def create(path: Path) -> sqlite3.Connection:
    """Create a run file in WAL mode that only its owner may read; another thread may use it.

    Raises OutputUnwritable.
    """
    try:
        os.close(
            os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        )
    except OSError as error:
        raise unwritable(path, error) from error
    connection = None
    try:
        connection = sqlite3.connect(
            path, check_same_thread=False, isolation_level=None, timeout=LOCK_TIMEOUT_S
        )
        # Half the usual size: each commit rewrites a page of every series, and each table takes at
        # least one page.
        connection.execute("PRAGMA page_size = 2048")
        connection.execute("PRAGMA journal_mode = WAL")
        # In WAL mode this loses nothing if a process is killed, and only the last commits at a
        # power failure.
        connection.execute("PRAGMA synchronous = NORMAL")
        # In KiB, half the usual size: written data is hardly ever read again.
        connection.execute("PRAGMA cache_size = -1000")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.executescript(TEXT)
    except (sqlite3.Error, OSError, MemoryError) as error:
        if connection is not None:
            connection.close()
        remove(path)
        raise unwritable(path, error) from error
    return connection


def remove(path: Path) -> None:
    """Remove a run file with its logs, as far as possible."""
    for name in (path.name, *(f"{path.name}-{log}" for log in ("wal", "shm", "journal"))):
        with contextlib.suppress(OSError):
            path.with_name(name).unlink()


def may_pass(error: Exception) -> bool:
    """Say whether the cause of an error may go away.

    Such causes are a lock, a full disk, an I/O error, or a lack of memory.
    """
    code = getattr(error, "sqlite_errorcode", None)  # from Python 3.11 on
    if code is None:
        return isinstance(error, (sqlite3.OperationalError, MemoryError))
    return code & 0xFF in _PASSING


def is_of_the_data(error: Exception) -> bool:
    """Say whether the fault lies in the data to be written, and not in the file."""
    of_the_data = (
        sqlite3.IntegrityError,
        sqlite3.DataError,
        sqlite3.InterfaceError,
        sqlite3.ProgrammingError,
    )
    return isinstance(error, of_the_data) or not isinstance(error, (sqlite3.Error, MemoryError))


def row_of(stored: msgspec.Struct, table: str) -> dict[str, Any]:
    """Return the fields of a record or a row that are columns of a table, as the file has them."""
    columns = {name for name, *_ in _own_schema()[0][table]}
    fields = zip(stored.__struct_encode_fields__, msgspec.structs.astuple(stored), strict=True)
    return {name: as_stored(value) for name, value in fields if name in columns}


def listed(ids: Iterable[int]) -> str:
    """Return numbers as SQL lists them after IN."""
    return ",".join(f"{one:d}" for one in ids)


def insert(connection: sqlite3.Connection, table: str, row: Mapping[str, object]) -> int:
    """Add a row to a table, and return its id."""
    names, places = ", ".join(row), ", ".join("?" * len(row))
    cursor = connection.execute(
        f"INSERT INTO {table} ({names}) VALUES ({places})", tuple(row.values())
    )
    if cursor.lastrowid is None:
        raise sqlite3.DatabaseError("an insert gave no id")
    return cursor.lastrowid


def set_meta(connection: sqlite3.Connection, **values: object) -> None:
    """Write facts about the whole run."""
    connection.executemany(
        "INSERT OR REPLACE INTO meta (name, value) VALUES (?,?)",
        [(name, as_stored(value)) for name, value in values.items()],
    )


def as_stored(value: object) -> object:
    """Return a value as the file stores it: as JSON if SQLite has no such type."""
    if isinstance(value, (tuple, dict, msgspec.Struct)):
        return msgspec.json.encode(value).decode()
    return value


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all that the block writes, or nothing of it if it raises."""
    if connection.in_transaction:  # without memory, even the rollback had failed
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # after some errors SQLite itself has ended it
            connection.execute("ROLLBACK")
        raise


def open_readonly(path: Path) -> BoundedConnection:
    """Open a run file, live or finished.

    Raises RunUnreadable if it is missing, damaged, newer than this profd, or no run file.
    """
    _check_header(path)
    lacks_log = is_without_log(path)  # asked now, because SQLite makes one for its readers
    connection = _connect(path)
    try:
        with reading(path):
            for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {pragma}")
            application_id, version = connection.rows(
                "SELECT * FROM pragma_application_id, pragma_user_version"
            )[0]
            if lacks_log and _is_begun_in_log(connection):
                raise without_log(path)
            if application_id != APPLICATION_ID:
                raise RunUnreadable(f"{path} is a database, but no run file of profd", _SEE_RUNS)
            if version > SCHEMA_VERSION:
                why = f"{path} has format {version}, this profd reads up to {SCHEMA_VERSION}"
                raise RunUnreadable(why, "update profd to read it")
            _check_schema(connection)
    except RunUnreadable:
        connection.close()
        raise
    return connection


def _connect(path: Path) -> BoundedConnection:
    """Connect to a file for reading; a file without a log can be read in any folder.

    Nobody writes a file without a log.
    """
    log = log_of(path)
    with reading(path):
        # A writer has a log from the start. SQLite would create one here, and leave it behind.
        if not log.exists():
            return _connect_as(path, "mode=ro&immutable=1")
        try:
            return _connect_as(path, "mode=ro")
        except sqlite3.OperationalError as error:
            # SQLite keeps a file beside the log, through which its readers and its writer
            # coordinate.
            code = getattr(error, "sqlite_errorcode", _READ_ONLY)  # from Python 3.11 on
            if code & 0xFF not in (_READ_ONLY, _CANNOT_OPEN):
                raise
            if not log.stat().st_size:  # all of the log was folded into the file
                return _connect_as(path, "mode=ro&immutable=1")
            if os.access(log.parent, os.W_OK):
                raise
    why = "its log cannot be read in a folder that you may not write to"
    raise RunUnreadable(f"{path} cannot be read ({why})", f"copy it and {log.name} to another one")


def _connect_as(path: Path, how: str) -> BoundedConnection:
    # A prepared statement with the ids of a hundred rows takes 15 KB, and the ids always differ. To
    # keep the usual 128 statements would cost megabytes, and saves no measurable time.
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        check_same_thread=False,
        factory=BoundedConnection,
        cached_statements=8,
    )
    connection.bound(path)  # with its first statement, SQLite reads the file's statistics
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def log_of(path: Path) -> Path:
    """Return the log of a file: beside it, or beside the target of a link."""
    target = path.resolve()
    return target.with_name(f"{target.name}-wal")


def is_without_log(path: Path) -> bool:
    """Say whether a file has no log: its run has ended, or it is a copy of a live one."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    return header[_LOG_VERSIONS] == b"\2\2" and not log_of(path).exists()


def _is_begun_in_log(connection: BoundedConnection) -> bool:
    """Say whether even the first records of a run are only in its log."""
    names = {name for _, name, *_ in connection.rows(_ENTRIES)}
    return not names or ("meta" in names and not connection.rows("SELECT 1 FROM meta LIMIT 1"))


def without_log(path: Path) -> RunUnreadable:
    """Return the error for a file whose first records were only in a log that is missing."""
    what = f"{path} has nothing of a run without its log, and {log_of(path).name} is not beside it"
    return RunUnreadable(what, "copy a live run together with its log, or once it has ended")


def fold(path: Path) -> None:
    """Fold the log of a run that has ended into its file, unless others read it."""
    log = log_of(path)
    with contextlib.suppress(sqlite3.Error, OSError):
        if not log.exists() or log.stat().st_uid != os.geteuid():
            return
        uri = f"{log.with_name(log.name.removesuffix('-wal')).as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, and of the contents of its tables, into RunUnreadable."""
    try:
        yield
    except (
        sqlite3.Error,
        MemoryError,
        RecursionError,
        msgspec.DecodeError,
        UnicodeDecodeError,
    ) as error:
        raise unreadable(path, str(error) or "out of memory") from error


def unreadable(path: Path, why: str) -> RunUnreadable:
    """Return the error to raise if a run file turns out to be damaged."""
    remedy = f"if it is damaged, `sqlite3 {path.name} .recover` saves what is left of it"
    return RunUnreadable(f"{path} cannot be read ({why})", remedy)


def copy_whole(source: Path, destination: Path) -> None:
    """Write a run file and the contents of its log as one file; others may read the run file.

    Raises OutputUnwritable.
    """
    try:
        with contextlib.closing(sqlite3.connect(source)) as connection:
            connection.execute("VACUUM INTO ?", (str(destination),))
    except (sqlite3.Error, MemoryError) as error:
        raise unwritable(destination, error) from error


def unwritable(path: Path, error: Exception) -> OutputUnwritable:
    """Return the error to raise if a file cannot be written."""
    why = getattr(error, "strerror", None) or str(error) or "out of memory"
    return OutputUnwritable(
        f"cannot write {path} ({why})", "choose another place with -o FILE, or set PROFD_HOME"
    )


def _check_header(path: Path) -> None:
    """Raise RunUnreadable if the header shows that this is no run file of profd.

    Raises it also if the header shows that the end of the file is missing.
    """
    try:
        header = b""
        if path.is_file():  # reading a pipe would block
            with path.open("rb") as file:
                header = file.read(_HEADER.size)
        size = path.stat().st_size
    except OSError as error:
        raise RunUnreadable.of_system(f"{path} cannot be read", error, _SEE_RUNS) from error
    if len(header) < _HEADER.size or not header.startswith(b"SQLite format 3\0"):
        raise RunUnreadable(f"{path} is no run file", _SEE_RUNS)
    page_size, pages = _HEADER.unpack(header)[1], _HEADER.unpack(header)[9]
    page_bytes = 65536 if page_size == 1 else page_size
    # With a write-ahead log beside it, the file may be shorter than its own header says.
    if size < pages * page_bytes and not log_of(path).exists():
        remedy = f"copy it again, or save what is left of it with `sqlite3 {path.name} .recover`"
        raise RunUnreadable(f"{path} is cut short ({size} of {pages * page_bytes} bytes)", remedy)
