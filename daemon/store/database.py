"""How profd talks to SQLite: open, create, and turn its errors into ours. Knows nothing of runs' contents."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from profd.daemon.errors import OutputUnwritable, RunUnreadable
from profd.daemon.store import schema
from profd.daemon.store.bounded import BoundedConnection

APPLICATION_ID = 0x70726664  # "prfd", so that file(1) and we can tell a run file from any other database
SCHEMA_VERSION = 1
_HEADER = struct.Struct(">16sHBBBBBBII")  # SQLite's file header up to the size of the database in pages
_MAGIC = b"SQLite format 3\0"
LOCK_TIMEOUT_S = 1.0
"""For how long a statement waits for who else has locked the file."""
# SQLITE_BUSY, _LOCKED, _NOMEM, _READONLY, _IOERR, _FULL, _CANTOPEN, _PROTOCOL, without what stands in the upper bytes.
_PASSING = frozenset({5, 6, 7, 8, 10, 13, 14, 15})


def create(path: Path) -> sqlite3.Connection:
    """Create a run file, in WAL mode and readable by its owner alone.

    The connection may be handed to one other thread. Raises OutputUnwritable where the file cannot be made.
    """
    try:
        path.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        return _begun(path)
    except (sqlite3.Error, OSError, MemoryError) as error:
        remove(path)
        raise unwritable(path, error) from error


def remove(path: Path) -> None:
    """Remove a run file of which nothing came, as far as that can be done."""
    for name in (path.name, *(f"{path.name}-{log}" for log in ("wal", "shm", "journal"))):
        with contextlib.suppress(OSError):
            path.with_name(name).unlink()


def _begun(path: Path) -> sqlite3.Connection:
    """Return a connection to an empty file, with the tables of a run in it."""
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=LOCK_TIMEOUT_S)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # In WAL mode this loses nothing when a process is killed, and at a power failure the last commits only.
        connection.execute("PRAGMA synchronous = NORMAL")
        # In KiB, half of what is usual: what was written is hardly read again.
        connection.execute("PRAGMA cache_size = -1000")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.executescript(schema.TEXT)
    except BaseException:
        connection.close()
        raise
    return connection


def may_pass(error: Exception) -> bool:
    """Say whether what was refused may be granted later: a lock, room on the disk, an answer of the disk, memory."""
    code = getattr(error, "sqlite_errorcode", None)  # from Python 3.11 on
    if code is None:
        return isinstance(error, (sqlite3.OperationalError, MemoryError))
    return code & 0xFF in _PASSING


def is_of_the_data(error: Exception) -> bool:
    """Say whether something is wrong with what was to be written, and not with the file."""
    of_the_data = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
    return isinstance(error, of_the_data) or not isinstance(error, (sqlite3.Error, MemoryError))


def open_readonly(path: Path) -> BoundedConnection:
    """Open a run file for reading, live or finished.

    Raises RunUnreadable where the file is missing, no run file, cut short, damaged, or of a newer version.
    """
    _check_header(path)
    with reading(path):
        uri = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, check_same_thread=False, factory=BoundedConnection)
    try:
        with reading(path):
            connection.bound(path)
            for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {pragma}")
            _check_kind(path, *connection.rows("SELECT * FROM pragma_application_id, pragma_user_version")[0])
            schema.check(connection)
    except RunUnreadable:
        connection.close()
        raise
    return connection


def _check_kind(path: Path, application_id: int, version: int) -> None:
    """Raise RunUnreadable where a database is no run file, or that of a newer profd."""
    if application_id != APPLICATION_ID:
        raise RunUnreadable(f"{path} is a database, but no run file of profd", "see `profd ls` for the runs there are")
    if version > SCHEMA_VERSION:
        raise RunUnreadable(
            f"{path} has format {version}, this profd reads up to {SCHEMA_VERSION}", "update profd to read it"
        )


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, and of what is in its tables, into RunUnreadable."""
    try:
        yield
    except (sqlite3.Error, MemoryError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(path, str(error) or "out of memory") from error


def unreadable(path: Path, why: str) -> RunUnreadable:
    """Return the error to raise when a run file turns out to be damaged."""
    return RunUnreadable(
        f"{path} cannot be read ({why})", f"if it is damaged, `sqlite3 {path.name} .recover` saves what is left of it"
    )


def copy_whole(source: Path, destination: Path) -> None:
    """Write a run file that others may be reading, and what its log still holds, as one file elsewhere.

    Raises OutputUnwritable.
    """
    try:
        with contextlib.closing(sqlite3.connect(source)) as connection:
            connection.execute("VACUUM INTO ?", (str(destination),))
    except (sqlite3.Error, MemoryError) as error:
        raise unwritable(destination, error) from error


def unwritable(path: Path, error: Exception) -> OutputUnwritable:
    """Return the error to raise when a file cannot be written."""
    why = getattr(error, "strerror", None) or str(error) or "out of memory"
    return OutputUnwritable(f"cannot write {path} ({why})", "choose another place with -o FILE, or set PROFD_HOME")


def _check_header(path: Path) -> None:
    """Raise RunUnreadable where the header already shows that the file is none of ours, or has lost its end."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
        header = _read_header(path) if is_file else b""  # a pipe would keep us waiting
        size = path.stat().st_size
    except OSError as error:
        raise RunUnreadable(
            f"{path} cannot be read ({error.strerror})", "see `profd ls` for the runs there are"
        ) from error
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise RunUnreadable(f"{path} is no run file", "see `profd ls` for the runs there are")
    page_size, pages = _HEADER.unpack(header)[1], _HEADER.unpack(header)[9]
    page_bytes = 65536 if page_size == 1 else page_size
    # With a write-ahead log beside it the file may rightly be shorter than its own header says.
    if size < pages * page_bytes and not path.with_name(path.name + "-wal").exists():
        raise RunUnreadable(
            f"{path} is cut short ({size} of {pages * page_bytes} bytes)",
            f"copy it again, or save what is left of it with `sqlite3 {path.name} .recover`",
        )


def _read_header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEADER.size)
