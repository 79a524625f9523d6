"""Chooses of whom a torch.profiler window is taken. Knows roles and who listens, and nothing of how it is taken."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from profd.daemon.clock import Clock
from profd.daemon.errors import SessionFailed
from profd.daemon.store.records import Record
from profd.daemon.supervise.control import WindowBegun
from profd.daemon.supervise.roles import MAIN
from profd.daemon.supervise.tree import Member
from profd.daemon.windows.request import WindowRequest
from profd.daemon.windows.taking import WindowTaker


class Windowing:
    """The windows of a session; of none where the script was not armed for them."""

    def __init__(self, folder: Path | None, clock: Clock, put: Callable[[Record], None]) -> None:
        """``folder`` is where the script's torch asks for windows, None where it does not."""
        self._taker = WindowTaker(folder, clock, put) if folder else None

    def start(self) -> None:
        """Listen to the script from now on; raises SessionFailed."""
        if self._taker is not None:
            self._taker.start()

    def begin(self, members: Collection[Member], request: WindowRequest) -> WindowBegun:
        """Ask every training process for a window; raises SessionFailed where none can be asked."""
        if self._taker is None:
            raise SessionFailed("this run takes no windows", "launch it with `profd run --torch-window -- CMD`")
        training = [member.identity for member in members if member.role == MAIN and member.python is not None]
        # One that has not asked yet may be importing torch still: it is given its time.
        asked = [identity for identity in training if identity.pid in self._taker.pids] or training
        if not asked:
            raise SessionFailed("no process of this run trains", "wait until one does")
        return WindowBegun(self._taker.begin(asked, request), tuple(identity.pid for identity in asked))

    async def close(self) -> None:
        """Give up the windows that are being taken."""
        if self._taker is not None:
            await self._taker.close()
