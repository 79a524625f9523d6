"""Takes windows of the processes of a run: waits for the trace, and has it reduced.

Each process that was asked gets one record: a window, or why there is none. Files of a process are
made and opened with the rights of its user, so that a link in their place leads nowhere that this
user may not go.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.errors import OutputUnwritable, ProfdError, SessionFailed
from profd.daemon.events import EventKind
from profd.daemon.store.records import EventHappened, Identity, Put, WindowTaken
from profd.daemon.units import plural, size, step_time
from profd.daemon.userfiles import START_S, UserFiles, files_of
from profd.daemon.windows.reduction import reduce_apart
from profd.daemon.windows.request import WindowFailed, WindowRequest


class WindowBackend(Protocol):
    """A way to get the trace of a process; ``source`` is its name in a run file."""

    source: str

    def trace(
        self, identity: Identity, request: WindowRequest, asked_ns: int
    ) -> AbstractAsyncContextManager[int]:
        """Have a process write its trace, and give an open descriptor of it; raises ProfdError."""
        ...


class WindowTaker:
    """The windows of one run."""

    def __init__(self, clock: Clock, put: Put) -> None:
        self._clock, self._put = clock, put
        self._tasks: dict[Identity, asyncio.Task[None]] = {}

    @property
    def is_taking(self) -> bool:
        """Whether a window is being taken, or its trace read."""
        return bool(self._tasks)

    def begin(self, asked: Mapping[Identity, WindowBackend], request: WindowRequest) -> int:
        """Begin a window of each process, return their ``asked_ns``.

        Raises SessionFailed if one is at it.
        """
        if busy := [identity.pid for identity in asked if identity in self._tasks]:
            raise SessionFailed(f"process {busy[0]} is at a window already", "wait for it to end")
        asked_ns = self._clock.now_ns()
        for identity, backend in asked.items():
            self._tasks[identity] = asyncio.ensure_future(
                self._take(identity, backend, request, asked_ns)
            )
        return asked_ns

    async def close(self) -> None:
        """Give up the windows that are being taken."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(
        self, identity: Identity, backend: WindowBackend, request: WindowRequest, asked_ns: int
    ) -> None:
        try:
            async with backend.trace(identity, request, asked_ns) as trace:
                trace_bytes = os.fstat(trace).st_size
                if trace_bytes >= 16 << 20:  # it takes seconds
                    self._report(
                        identity,
                        f"reading the trace of process {identity.pid}: {size(trace_bytes)}",
                    )
                # A window of steps begins when the optimizer is done; one of seconds begins
                # anywhere.
                reduction = await reduce_apart(trace, begins_with_step=request.seconds is None)
            length = step_time((reduction.end_ns - reduction.start_ns) / SECOND_NS)
            text = (
                f"window of process {identity.pid}: {length}, "
                f"{plural(len(reduction.steps), 'whole step')}"
            )
            if reduction.trace is None:
                text += f"; its trace ({size(reduction.trace_bytes)}) is too large to be kept"
            found = msgspec.structs.asdict(reduction)
            window = WindowTaken(identity, self._clock.now_ns(), backend.source, asked_ns, **found)
        except ProfdError as error:
            text = f"no window of process {identity.pid}: {error}"
            window = WindowTaken(
                identity, self._clock.now_ns(), backend.source, asked_ns, error=str(error)
            )
        finally:
            self._tasks.pop(identity, None)
        self._report(identity, text)  # first: who waits for the window has then seen the event
        self._put(window)

    def _report(self, identity: Identity, text: str) -> None:
        self._put(EventHappened(self._clock.now_ns(), EventKind.WINDOW, text, identity))


async def wait_until(
    condition: Callable[[], bool], identity: Identity, clock: Clock, timeout_s: float
) -> bool:
    """Wait for a condition; False if it does not come in time.

    Raises WindowFailed if the process ends before.
    """
    deadline_ns = clock.now_ns() + int(timeout_s * SECOND_NS)
    while not condition():
        if not processes.is_running(*identity):
            raise WindowFailed(f"process {identity.pid} ended before its trace was written")
        if clock.now_ns() > deadline_ns:
            return False
        await asyncio.sleep(0.1)
    return True


class ExchangeFolder(NamedTuple):
    """A folder that profd and the process can both reach.

    ``files`` has their files, and ``there`` is its path as the process sees it.
    """

    files: UserFiles
    there: Path

    def has(self, name: str) -> bool:
        return self.files.is_file(self.there / name)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """Open a file and give its descriptor.

        Raises WindowFailed if there is no plain file of that name.
        """
        if (fd := self.files.open(self.there / name)) is None:
            raise WindowFailed(f"the process left no {name}")
        try:
            yield fd
        finally:
            os.close(fd)


@contextlib.contextmanager
def meeting(pid: int) -> Iterator[ExchangeFolder]:
    """Make a folder in the /tmp that the process sees, and remove it in the end.

    Raises ProfdError.
    """
    if not (processes.PROC / str(pid)).exists():
        raise WindowFailed(f"process {pid} cannot be looked at: it is gone")
    files = files_of(pid)
    files.deadline_s = START_S  # who asks for a window waits for it, on a busy machine too
    name = files.make_folder("/tmp")
    if name is None:
        what = f"no folder can be made in /tmp as the user of process {pid}"
        raise OutputUnwritable(what, "make room there, or see why it does not answer")
    there = Path("/tmp") / name
    try:
        yield ExchangeFolder(files, there)
    finally:
        files.remove(there)
