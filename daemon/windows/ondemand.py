"""Takes windows through Kineto's on-demand mode, for which a launch sets the environment.

It is not on by default, because reports of crashes on this path exist.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from profd.daemon import paths
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.errors import OutputUnwritable
from profd.daemon.store.records import Identity
from profd.daemon.userfiles import UserFiles
from profd.daemon.windows.kineto import KinetoDaemon
from profd.daemon.windows.request import WARMUP_S, WindowFailed, WindowRequest
from profd.daemon.windows.taking import ExchangeFolder, wait_until

ANSWER_TIMEOUT_S = 20.0
"""Kineto asks once a second, and not while a thread of it is held up by the training."""
TRACE_TIMEOUT_S = 120.0
START_AFTER_S = WARMUP_S + 1.5
"""From the order of a window of seconds to its begin; see ``_orders``."""


class OnDemand:
    """The way to windows through Kineto's own protocol.

    Its daemon listens from ``start`` to ``close``.
    """

    source = "kineto"

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Use the folder of processes that were started with the environment of ``armed``."""
        self._place, self._clock = ExchangeFolder(UserFiles(), folder), clock
        self.daemon = KinetoDaemon(folder)

    @contextlib.asynccontextmanager
    async def trace(
        self, identity: Identity, request: WindowRequest, asked_ns: int
    ) -> AsyncIterator[int]:
        """Ask a process for a window and give its trace as a descriptor; raises ProfdError."""
        pid, name, place = identity.pid, f"trace{asked_ns}", self._place
        trace = f"{name}_{pid}.json"
        try:
            for order in self._orders(request, place.there / f"{name}.json"):
                self.daemon.ask(pid, order)
                if await self._has_come(trace, identity, request):
                    break
            else:
                raise WindowFailed(f"process {pid} has begun no window, twice", "ask for it again")
            with place.opened(trace) as opened:
                yield opened
        finally:
            place.files.remove(place.there / trace)
            self.daemon.withdraw(pid)

    def _orders(self, request: WindowRequest, trace: Path) -> list[Callable[[], str]]:
        """Return how a process is asked, and how once more if it has thrown the order away.

        Kineto looks once a second at the order. A look begins a window of seconds in one certain
        second only: an earlier look leaves the order alone, a later one throws it away. Looks at
        the two ends of that second miss it if the later one is a little late. In a process that was
        asked before, Kineto places the second so that its looks lie at the ends. The two orders
        have seconds that begin half a second apart.
        """
        if request.seconds is None:
            return [lambda: request.configuration(trace)]

        def begun_by_us() -> str:
            wall_ns = self._clock.now_ns() + self._clock.wall_jump_ns()
            return request.configuration(trace, wall_ns + int(START_AFTER_S * SECOND_NS))

        return [begun_by_us, lambda: request.configuration(trace)]

    async def _has_come(self, trace: str, identity: Identity, request: WindowRequest) -> bool:
        """Wait for the trace of a process that was asked; False if it threw the order away.

        Raises WindowFailed.
        """
        pid = identity.pid
        if not await wait_until(
            lambda: pid in self.daemon.given, identity, self._clock, ANSWER_TIMEOUT_S
        ):
            what = f"process {pid} did not ask for work within {ANSWER_TIMEOUT_S:.0f} s"
            raise WindowFailed(
                what, "it may have ended its use of torch, or be taking a trace of its own"
            )

        def is_over() -> bool:
            # The file is whole once it is there: Kineto writes it under another name first, and is
            # free only after. A process that was given a window of seconds has begun it before it
            # says for the third time that it takes none, or has thrown the order away.
            is_refused = request.seconds is not None and self.daemon.given.get(pid, 0) >= 3
            return self._place.has(trace) or is_refused

        timeout_s = TRACE_TIMEOUT_S + (request.seconds or 0.0)
        if not await wait_until(is_over, identity, self._clock, timeout_s):
            what = f"no trace of process {pid} has arrived within {timeout_s:.0f} s"
            remedy = "give --seconds, if its optimizer is not torch's or steps take minutes"
            raise WindowFailed(what, "" if request.seconds else remedy)
        return self._place.has(trace)


class KinetoEnvironment(NamedTuple):
    """The folder of sockets and traces, and the variables that a script needs to be asked there."""

    folder: Path
    environment: dict[str, str]


@contextlib.contextmanager
def armed(inherited: Mapping[str, str]) -> Iterator[KinetoEnvironment]:
    """Give the folder of a run with the script's ``inherited`` environment, armed.

    Raises OutputUnwritable.
    """
    # In /tmp whatever else is set: of the 107 bytes of a socket's path Kineto takes 54 for its own
    # name.
    folder = paths.make_private(Path(f"/tmp/profd-{os.getuid()}")) / f"w{secrets.token_hex(4)}"
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        what = f"cannot create {folder}"
        raise OutputUnwritable.of_system(what, error, "make room in /tmp") from error
    try:
        yield KinetoEnvironment(folder, _variables(folder, inherited))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _variables(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    settings = ""
    # The user's, if there are any to be read.
    with contextlib.suppress(KeyError, OSError, UnicodeDecodeError):
        settings = Path(inherited["KINETO_CONFIG"]).read_text().rstrip("\n") + "\n"
    config = folder / "kineto.conf"
    try:
        config.write_text(f"{settings}ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
    except OSError as error:
        what = f"cannot write {config}"
        raise OutputUnwritable.of_system(what, error, "make room in /tmp") from error
    return {
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": str(folder),
        "KINETO_ONDEMAND_TRACE_DIR": str(folder),
        "KINETO_CONFIG": str(config),
        # Above all of Kineto's messages: it would write to stderr that it listens and gets no
        # answer.
        "KINETO_LOG_LEVEL": inherited.get("KINETO_LOG_LEVEL", "5"),
    }
