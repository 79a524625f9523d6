"""The environment that makes Kineto, inside torch, listen for requests, and the folder that it does so in.

Only a run that was asked for windows gets it: reports of crashes on this path exist, so it is not on by default. A
process may have it from someone else.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from profd.daemon import paths, processes
from profd.daemon.errors import OutputUnwritable
from profd.daemon.userfiles import sees_our_files

_SWITCH, _SOCKETS = "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR"
_CONFIG = "kineto.conf"
_POLLING = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n"
_SILENT = "5"
"""A level of Kineto's log above all that it says: it would tell stderr that it listens, and that nobody answers."""


class Sockets(NamedTuple):
    """Where a process asks whether a window is wanted: a folder, or None for the abstract namespace."""

    folder: Path | None


class Arms(NamedTuple):
    """The folder of sockets and traces, and the variables that a script needs to be asked there."""

    folder: Path
    environment: dict[str, str]


@contextlib.contextmanager
def armed(inherited: Mapping[str, str]) -> Iterator[Arms]:
    """Make the folder for a run, and remove it in the end; raises OutputUnwritable.

    ``inherited`` is the environment that the script would have: what it says of Kineto's log and settings stays.
    """
    folder = _make_folder()
    try:
        yield Arms(folder, _variables(folder, inherited))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sockets_of(pid: int) -> Sockets | None:
    """Return where a process asks for windows, by the environment that it was started with.

    None where it does not, or where that cannot be reached from here, as in a container.
    """
    variables = processes.environment(pid, frozenset({_SWITCH, _SOCKETS}))
    if not variables.get(_SWITCH):
        return None
    folder = variables.get(_SOCKETS)
    if folder and processes.owner_uid(pid) != os.geteuid():
        return None  # a folder of its choice: with the rights of root a socket would be put wherever it likes
    try:
        is_reached = sees_our_files(pid) if folder else _shares_network(pid)
    except OSError:
        return None
    return Sockets(Path(folder) if folder else None) if is_reached else None


def _shares_network(pid: int) -> bool:
    """Say whether abstract sockets are the same for a process as here; raises OSError."""
    proc = processes.PROC
    return (proc / str(pid) / "ns/net").readlink() == (proc / "self/ns/net").readlink()


def _make_folder() -> Path:
    # In /tmp whatever else is set: of the 107 bytes of a socket's path Kineto takes 54 for its own name.
    folder = paths.make_private(Path(f"/tmp/profd-{os.getuid()}")) / f"w{secrets.token_hex(4)}"
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise OutputUnwritable(f"cannot create {folder} ({error.strerror})", "make room in /tmp") from error
    return folder


def _variables(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    config = folder / _CONFIG
    try:
        config.write_text(_settings_of(inherited) + _POLLING)
    except OSError as error:
        raise OutputUnwritable(f"cannot write {config} ({error.strerror})", "make room in /tmp") from error
    return {
        _SWITCH: "1",
        _SOCKETS: str(folder),
        "KINETO_ONDEMAND_TRACE_DIR": str(folder),
        "KINETO_CONFIG": str(config),
        "KINETO_LOG_LEVEL": inherited.get("KINETO_LOG_LEVEL", _SILENT),
    }


def _settings_of(inherited: Mapping[str, str]) -> str:
    """Return the settings of Kineto that the user has in a file, where there is one that can be read."""
    try:
        return Path(inherited["KINETO_CONFIG"]).read_text().rstrip("\n") + "\n"
    except (KeyError, OSError, UnicodeDecodeError):
        return ""
