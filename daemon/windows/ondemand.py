"""Takes windows through Kineto's on-demand mode, for which a launch sets the environment.

Whoever launched it may have been another: such a process is listened to for as long as a window takes, and no longer.

Only a run that was asked for windows gets it: reports of crashes on this path exist, so it is not on by default. A
process may have it from someone else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from profd.daemon import paths, processes
from profd.daemon.clock import Clock
from profd.daemon.errors import OutputUnwritable
from profd.daemon.store.records import Identity
from profd.daemon.userfiles import UserFiles, sees_our_files
from profd.daemon.windows.kineto import KinetoDaemon
from profd.daemon.windows.request import WindowFailed, WindowRequest
from profd.daemon.windows.taking import Deadline, ExchangeFolder, meeting

ANSWER_TIMEOUT_S = 20.0
"""Kineto asks once a second, and not while a thread of it is held up by the training."""
TRACE_TIMEOUT_S = 120.0


Place = AbstractContextManager[ExchangeFolder]


class OnDemand:
    """The way to windows through Kineto's own protocol."""

    source = "kineto"

    def __init__(self, sockets: Path | None, clock: Clock, place: Callable[[int], Place]) -> None:
        """``sockets`` is the folder of ``kineto``; ``place`` gives the folder that a process may leave its trace in."""
        self._place = place
        self._patience = Deadline(clock)
        self._daemon = KinetoDaemon(sockets, self._take_delivery)
        self._given: dict[int, asyncio.Event] = {}

    def start(self) -> None:
        """Listen to the run's processes from now on; raises SessionFailed."""
        self._daemon.start()

    def close(self) -> None:
        """Listen no more."""
        self._daemon.close()

    @property
    def pids(self) -> frozenset[int]:
        """The processes that have asked whether a window is wanted of them."""
        return self._daemon.clients

    @contextlib.asynccontextmanager
    async def trace(self, identity: Identity, request: WindowRequest, asked_ns: int) -> AsyncIterator[int]:
        """Ask a process for a window and give its trace as a descriptor; raises WindowFailed."""
        pid, name = identity.pid, f"trace{asked_ns}"
        with self._place(pid) as place:
            trace = f"{name}_{pid}.json"
            self._given[pid] = asyncio.Event()
            try:
                self._daemon.ask(pid, request.configuration(place.there / f"{name}.json"))
                await self._wait_for(place, trace, identity, request)
                with place.opened(trace) as opened:
                    yield opened
            finally:
                self._daemon.withdraw(pid)
                self._given.pop(pid, None)
                place.remove(trace)

    async def _wait_for(self, place: ExchangeFolder, trace: str, identity: Identity, request: WindowRequest) -> None:
        """Wait until the trace is there, whole: Kineto writes it under another name first."""
        pid = identity.pid
        if not await self._patience.until(self._given[pid].is_set, identity, ANSWER_TIMEOUT_S):
            raise WindowFailed(
                f"process {pid} did not ask for work within {ANSWER_TIMEOUT_S:.0f} s",
                "it may have ended its use of torch, or be taking a trace of its own",
            )
        patience_s = TRACE_TIMEOUT_S + (request.seconds or 0.0)
        if not await self._patience.until(lambda: place.has(trace), identity, patience_s):
            remedy = (
                "give --seconds, if its optimizer is not torch's or steps take minutes" if not request.seconds else ""
            )
            raise WindowFailed(f"no trace of process {pid} has arrived within {patience_s:.0f} s", remedy)

    def _take_delivery(self, pid: int) -> None:
        with contextlib.suppress(KeyError):
            self._given[pid].set()


class Passing:
    """The way to windows of processes that others have armed, all with the same sockets.

    Nobody else can serve these meanwhile, so they are bound for no longer than a window takes.
    """

    source = OnDemand.source

    def __init__(self, sockets: Path | None, clock: Clock) -> None:
        """``sockets`` is what their environment names, None where that is the abstract namespace."""
        self._on_demand = OnDemand(sockets, clock, meeting)
        self._windows = 0

    @contextlib.asynccontextmanager
    async def trace(self, identity: Identity, request: WindowRequest, asked_ns: int) -> AsyncIterator[int]:
        """Ask a process for a window and give its trace as a descriptor; raises ProfdError."""
        if not self._windows:
            self._on_demand.start()
        self._windows += 1
        try:
            async with self._on_demand.trace(identity, request, asked_ns) as trace:
                yield trace
        finally:
            self._windows -= 1
            if not self._windows:
                self._on_demand.close()


def on_demand_in(folder: Path, clock: Clock) -> OnDemand:
    """Return the way to windows of the processes that ``arming`` has armed, in its folder."""
    return OnDemand(folder, clock, lambda pid: nullcontext(ExchangeFolder(UserFiles(), folder)))


_SWITCH, _SOCKETS = "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR"
_CONFIG = "kineto.conf"
_POLLING = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n"
_SILENT = "5"
"""A level of Kineto's log above all that it says: it would tell stderr that it listens, and that nobody answers."""


class Sockets(NamedTuple):
    """Where a process asks whether a window is wanted: a folder, or None for the abstract namespace."""

    folder: Path | None


class KinetoEnvironment(NamedTuple):
    """The folder of sockets and traces, and the variables that a script needs to be asked there."""

    folder: Path
    environment: dict[str, str]


@contextlib.contextmanager
def armed(inherited: Mapping[str, str]) -> Iterator[KinetoEnvironment]:
    """Make the folder for a run, and remove it in the end; raises OutputUnwritable.

    ``inherited`` is the environment that the script would have: what it says of Kineto's log and settings stays.
    """
    folder = _make_folder()
    try:
        yield KinetoEnvironment(folder, _variables(folder, inherited))
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
