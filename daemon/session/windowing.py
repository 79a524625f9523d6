"""Choose the processes of a torch.profiler window, and the backend that takes it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from profd.daemon.clock import Clock
from profd.daemon.errors import SessionFailed
from profd.daemon.events import EventKind
from profd.daemon.session.control import WindowBegun
from profd.daemon.store.records import EventHappened, Found, Put
from profd.daemon.tree.tree import Member
from profd.daemon.windows import injection
from profd.daemon.windows.injection import Injection
from profd.daemon.windows.ondemand import OnDemand
from profd.daemon.windows.request import WindowRequest
from profd.daemon.windows.taking import WindowBackend, WindowTaker

_REMEDY = (
    "launch it with `profd run --torch-window -- CMD`, or add --inject, which has gdb (from "
    "Python 3.14 on Python itself) start the profiler inside of the process that runs"
)


@dataclass(eq=False)
class Windowing:
    """The windows of a session."""

    folder: Path | None
    """The folder in which the script's torch asks for windows; None if it was not armed."""
    clock: Clock
    put: Put
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._on_demand = OnDemand(self.folder, self.clock) if self.folder else None
        self._taker = WindowTaker(self.clock, self.put)
        self._shown: set[str] = set()
        """The rules whose findings have had their window."""

    @property
    def is_taking(self) -> bool:
        return self._taker.is_taking

    def start(self) -> None:
        if self._on_demand is not None:
            self._on_demand.daemon.start()

    def begin(self, members: Collection[Member], request: WindowRequest) -> WindowBegun:
        """Ask every training process for a window, or only the one that is named.

        Raises SessionFailed if no process can take one.
        """
        training = _training(members, request.pid)
        # A process that has not asked yet may still be importing torch: give it time.
        listening = self._on_demand.daemon.clients if self._on_demand else set()
        chosen = [member for member in training if member.identity.pid in listening] or training
        asked = {
            one.identity: backend
            for one in chosen
            if (backend := self._backend_of(one, request)) is not None
        }
        if not asked:
            raise SessionFailed("this run takes no windows", _REMEDY)
        asked_ns = self._taker.begin(asked, request)
        injected = any(isinstance(backend, Injection) for backend in asked.values())
        return WindowBegun(asked_ns, tuple(identity.pid for identity in asked), injected)

    async def keep(
        self, every_s: float, request: WindowRequest, members: Callable[[], Collection[Member]]
    ) -> None:
        """Take a window every ``every_s`` seconds; store an event for one that cannot be taken."""
        while True:
            await self.sleep(every_s)
            try:
                self.begin(members(), request)
            except SessionFailed as error:
                self._say(f"no window by schedule: {error}")

    def heed(
        self, findings: Collection[Found], request: WindowRequest, members: Collection[Member]
    ) -> None:
        """Take one window for each rule whose finding is worth one.

        Rules whose findings come at once share a window.
        """
        new = [one for one in findings if one.severity != "info" and one.rule not in self._shown]
        # A process that has not asked for work may still import torch, and has no operators to
        # show.
        if not new or self._on_demand is None or not self._on_demand.daemon.clients:
            return
        with contextlib.suppress(SessionFailed):  # the next look asks again
            self.begin(members, request)
            self._say(f"a window because of {'; and of '.join(one.title for one in new)}")
            self._shown.update(one.rule for one in new)

    def _say(self, text: str) -> None:
        self.put(EventHappened(self.clock.now_ns(), EventKind.WINDOW, text))

    def _backend_of(self, member: Member, request: WindowRequest) -> WindowBackend | None:
        """Return the backend for a process, or None if there is none.

        An armed process is never injected.
        """
        if self._on_demand is not None:
            return self._on_demand
        return (
            Injection(injection.helper_for(member.python or ""), self.clock)
            if request.inject
            else None
        )

    async def close(self) -> None:
        await self._taker.close()
        if self._on_demand is not None:
            self._on_demand.daemon.close()


def _training(members: Collection[Member], pid: int | None) -> list[Member]:
    """Return the processes that train, or the one of them that is named.

    Raises SessionFailed if there is none.
    """
    training = [member for member in members if member.is_training]
    if pid is not None:
        training = [member for member in training if member.identity.pid == pid]
    if not training:
        what = "no process of this run trains"
        if pid is not None:
            what = f"process {pid} of this run does not train"
        raise SessionFailed(what, "wait until one does")
    return training
