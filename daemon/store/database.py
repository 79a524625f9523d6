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

APPLICATION_ID = 0x70726664  # "prfd", so that file(1) and we can tell a run file from any other database
SCHEMA_VERSION = 1
_HEADER = struct.Struct(">16sHBBBBBBII")  # SQLite's file header up to the size of the database in pages
_MAGIC = b"SQLite format 3\0"


def create(path: Path) -> sqlite3.Connection:
    """Create a run file, in WAL mode and readable by its owner alone.

    The connection may be handed to one other thread. Raises OutputUnwritable where the file cannot be made.
    """
    try:
        path.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    except sqlite3.Error as error:
        raise unwritable(path, error) from error
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # In WAL mode this loses nothing when a process is killed, and at a power failure the last commits only.
        connection.execute("PRAGMA synchronous = NORMAL")
        # In KiB, half of what is usual: what was written is hardly read again.
        connection.execute("PRAGMA cache_size = -1000")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.executescript(Path(__file__).with_name("schema.sql").read_text())
    except sqlite3.Error as error:
        connection.close()
        raise unwritable(path, error) from error
    return connection


def open_readonly(path: Path) -> sqlite3.Connection:
    """Open a run file for reading, live or finished.

    Raises RunUnreadable where the file is missing, no run file, cut short, damaged, or of a newer version.
    """
    _check_header(path)
    with reading(path):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        try:
            connection.execute("PRAGMA query_only = ON")
            application_id = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error:
            connection.close()
            raise
    if application_id != APPLICATION_ID:
        connection.close()
        raise RunUnreadable(f"{path} is a database, but no run file of profd", "see `profd ls` for the runs there are")
    if version > SCHEMA_VERSION:
        connection.close()
        raise RunUnreadable(
            f"{path} has format {version}, this profd reads up to {SCHEMA_VERSION}", "update profd to read it"
        )
    return connection


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, and of what is in its tables, into RunUnreadable."""
    try:
        yield
    except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(path, str(error)) from error


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
    except sqlite3.Error as error:
        raise unwritable(destination, error) from error


def unwritable(path: Path, error: Exception) -> OutputUnwritable:
    """Return the error to raise when a file cannot be written."""
    why = getattr(error, "strerror", None) or str(error)
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
