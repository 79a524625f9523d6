"""Takes windows of the processes of one run through Kineto: asks, waits for the file, has it reduced.

Every process that was asked ends in one record, a window or why there is none. Knows nothing of sockets to clients of
profd, of trees or of roles.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.errors import ProfdError, SessionFailed
from profd.daemon.store.records import EventHappened, Identity, Record, WindowTaken
from profd.daemon.windows.kineto import KinetoDaemon
from profd.daemon.windows.reduction import Reduction, reduce_apart
from profd.daemon.windows.request import WindowRequest

SOURCE = "kineto"
ANSWER_TIMEOUT_S = 20.0
"""Kineto asks once a second, and not while a thread of it is held up by the training."""
TRACE_TIMEOUT_S = 120.0
_LOOK_INTERVAL_S = 0.1
_LARGE_BYTES = 16 << 20


class WindowFailed(ProfdError):
    """A process was asked for a window and gave none."""


class WindowTaker:
    """The windows of one run."""

    def __init__(self, folder: Path, clock: Clock, put: Callable[[Record], None]) -> None:
        """``folder`` is that of ``arming``; records go to ``put``."""
        self._folder = folder
        self._clock = clock
        self._put = put
        self._daemon = KinetoDaemon(folder, self._take_delivery)
        self._given: dict[int, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen to the run's processes from now on; raises SessionFailed."""
        self._daemon.start()

    @property
    def pids(self) -> frozenset[int]:
        """The processes that have asked whether a window is wanted of them."""
        return self._daemon.clients

    def begin(self, asked: Iterable[Identity], request: WindowRequest) -> int:
        """Begin a window of each of these processes at once; returns the ``asked_ns`` of their records.

        Raises SessionFailed where one of them is still at a window.
        """
        asked = list(asked)
        if busy := [identity.pid for identity in asked if identity.pid in self._given]:
            raise SessionFailed(f"process {busy[0]} is at a window already", "wait for it to end")
        asked_ns = self._clock.now_ns()
        for identity in asked:
            self._given[identity.pid] = asyncio.Event()
            task = asyncio.ensure_future(self._take(identity, request, asked_ns))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return asked_ns

    async def close(self) -> None:
        """Give up the windows that are being taken, and listen no more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._daemon.close()

    async def _take(self, identity: Identity, request: WindowRequest, asked_ns: int) -> None:
        trace = self._folder / f"trace{asked_ns}_{identity.pid}.json"
        try:
            self._daemon.ask(identity.pid, request.configuration(self._folder / f"trace{asked_ns}.json"))
            await self._wait_for(trace, identity, request)
            self._say_size(identity, trace)
            # A window of steps begins when the optimizer is done; one of seconds begins anywhere.
            reduction = await reduce_apart(trace, begins_with_step=request.seconds is None)
        except ProfdError as error:
            self._say_failure(identity, asked_ns, str(error))
        else:
            self._store(identity, asked_ns, reduction)
        finally:
            self._daemon.withdraw(identity.pid)
            self._given.pop(identity.pid, None)
            trace.unlink(missing_ok=True)

    async def _wait_for(self, trace: Path, identity: Identity, request: WindowRequest) -> None:
        """Wait until the trace is there, whole: Kineto writes it under another name first."""
        pid = identity.pid
        try:
            await self._until(self._given[pid].is_set, identity, ANSWER_TIMEOUT_S)
        except asyncio.TimeoutError:
            raise WindowFailed(
                f"process {pid} did not ask for work within {ANSWER_TIMEOUT_S:.0f} s",
                "it may have ended its use of torch, or be taking a trace of its own",
            ) from None
        patience_s = TRACE_TIMEOUT_S + (request.seconds or 0.0)
        try:
            await self._until(trace.exists, identity, patience_s)
        except asyncio.TimeoutError:
            remedy = (
                "give --seconds, if its optimizer is not torch's or steps take minutes" if not request.seconds else ""
            )
            raise WindowFailed(f"no trace of process {pid} has arrived within {patience_s:.0f} s", remedy) from None

    async def _until(self, condition: Callable[[], bool], identity: Identity, patience_s: float) -> None:
        """Wait for a condition; raises WindowFailed where the process ends before, TimeoutError where time does."""
        deadline_ns = self._clock.now_ns() + int(patience_s * SECOND_NS)
        while not condition():
            if not processes.is_running(*identity):
                raise WindowFailed(f"process {identity.pid} ended before its trace was written")
            if self._clock.now_ns() > deadline_ns:
                raise asyncio.TimeoutError
            await asyncio.sleep(_LOOK_INTERVAL_S)

    def _take_delivery(self, pid: int) -> None:
        with contextlib.suppress(KeyError):
            self._given[pid].set()

    def _say_size(self, identity: Identity, trace: Path) -> None:
        """Say that a large trace is being read: it takes seconds."""
        size = trace.stat().st_size
        if size >= _LARGE_BYTES:
            text = f"reading the trace of process {identity.pid}: {size >> 20} MiB"
            self._put(EventHappened(self._clock.now_ns(), "window", text, identity))

    def _say_failure(self, identity: Identity, asked_ns: int, why: str) -> None:
        now_ns = self._clock.now_ns()
        self._put(EventHappened(now_ns, "window", f"no window of process {identity.pid}: {why}", identity))
        self._put(WindowTaken(identity, now_ns, SOURCE, asked_ns, error=why))

    def _store(self, identity: Identity, asked_ns: int, reduction: Reduction) -> None:
        now_ns = self._clock.now_ns()
        # Before the window: who waits for that has then seen the event.
        self._put(EventHappened(now_ns, "window", _summary(identity, reduction), identity))
        self._put(
            WindowTaken(
                identity,
                now_ns,
                SOURCE,
                asked_ns,
                start_ns=reduction.start_ns,
                end_ns=reduction.end_ns,
                steps=reduction.steps,
                device=reduction.device,
                operators=reduction.operators,
                trace_bytes=reduction.trace_bytes,
                trace=reduction.packed,
            )
        )


def _summary(identity: Identity, reduction: Reduction) -> str:
    length_ms = (reduction.end_ns - reduction.start_ns) / 1e6
    text = f"window of process {identity.pid}: {length_ms:.0f} ms, {len(reduction.steps)} whole steps"
    if reduction.packed is None:
        text += f"; its trace ({reduction.trace_bytes >> 20} MiB) is too large to be kept"
    return text
