"""Has Kineto write the trace of a process that was armed for it at launch: see ``kineto`` and ``arming``.

Whoever launched it may have been another: such a process is listened to for as long as a window takes, and no longer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from profd.daemon.clock import Clock
from profd.daemon.store.records import Identity
from profd.daemon.userfiles import UserFiles
from profd.daemon.windows.failure import WindowFailed
from profd.daemon.windows.kineto import KinetoDaemon
from profd.daemon.windows.meeting import Meeting, meeting
from profd.daemon.windows.patience import Patience
from profd.daemon.windows.request import WindowRequest

ANSWER_TIMEOUT_S = 20.0
"""Kineto asks once a second, and not while a thread of it is held up by the training."""
TRACE_TIMEOUT_S = 120.0


Place = AbstractContextManager[Meeting]


class OnDemand:
    """The way to windows through Kineto's own protocol."""

    source = "kineto"

    def __init__(self, sockets: Path | None, clock: Clock, place: Callable[[int], Place]) -> None:
        """``sockets`` is the folder of ``kineto``; ``place`` gives the folder that a process may leave its trace in."""
        self._place = place
        self._patience = Patience(clock)
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

    async def _wait_for(self, place: Meeting, trace: str, identity: Identity, request: WindowRequest) -> None:
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
    return OnDemand(folder, clock, lambda pid: nullcontext(Meeting(UserFiles(), folder)))
