"""Takes windows through Kineto's on-demand mode, for which a launch sets the environment.

It is not on by default, because reports of crashes on this path exist. A process may also have this
environment from another launcher: profd listens to such a process only while it takes a window.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from profd.daemon import paths, processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.errors import OutputUnwritable
from profd.daemon.store.records import Identity
from profd.daemon.userfiles import UserFiles, sees_our_files
from profd.daemon.windows.kineto import KinetoDaemon
from profd.daemon.windows.request import WARMUP_S, WindowFailed, WindowRequest
from profd.daemon.windows.taking import ExchangeFolder, meeting, wait_until

ANSWER_TIMEOUT_S = 20.0
"""Kineto asks once a second, and not while a thread of it is held up by the training."""
TRACE_TIMEOUT_S = 120.0
START_AFTER_S = WARMUP_S + 1.5
"""From the order of a window of seconds to its begin; see ``_orders``."""
_REFUSED_AFTER = 3
"""How often a process that was given a window of seconds may say that it takes none.

It has begun the window before the third time, or has thrown the order away.
"""
_SWITCH, _SOCKETS = "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR"
PlaceOf = Callable[[int], AbstractContextManager[ExchangeFolder]]


class OnDemand:
    """The way to windows through Kineto's own protocol.

    Its daemon listens from ``start`` to ``close``; without these, for processes that another
    launcher has armed, only while a window is taken: no other daemon can serve the sockets
    meanwhile.
    """

    source = "kineto"

    def __init__(self, sockets: Path | None, clock: Clock, place: PlaceOf = meeting) -> None:
        """Use the folder of ``kineto``; ``place`` gives the folder for the trace of a process."""
        self._place, self._clock = place, clock
        self.daemon = KinetoDaemon(sockets)

    @contextlib.asynccontextmanager
    async def trace(
        self, identity: Identity, request: WindowRequest, asked_ns: int
    ) -> AsyncIterator[int]:
        """Ask a process for a window and give its trace as a descriptor; raises ProfdError."""
        pid, name = identity.pid, f"trace{asked_ns}"
        trace = f"{name}_{pid}.json"
        self.daemon.start()
        try:
            with self._place(pid) as place:
                try:
                    for order in self._orders(request, place.there / f"{name}.json"):
                        self.daemon.ask(pid, order)
                        if await self._has_come(place, trace, identity, request):
                            break
                    else:
                        raise WindowFailed(
                            f"process {pid} has begun no window, twice", "ask for it again"
                        )
                    with place.opened(trace) as opened:
                        yield opened
                finally:
                    place.files.remove(place.there / trace)
        finally:
            self.daemon.withdraw(pid)
            self.daemon.close()

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

    async def _has_come(
        self, place: ExchangeFolder, trace: str, identity: Identity, request: WindowRequest
    ) -> bool:
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
            # free only after.
            is_refused = (
                request.seconds is not None and self.daemon.given.get(pid, 0) >= _REFUSED_AFTER
            )
            return place.has(trace) or is_refused

        timeout_s = TRACE_TIMEOUT_S + (request.seconds or 0.0)
        if not await wait_until(is_over, identity, self._clock, timeout_s):
            what = f"no trace of process {pid} has arrived within {timeout_s:.0f} s"
            remedy = "give --seconds, if its optimizer is not torch's or steps take minutes"
            raise WindowFailed(what, "" if request.seconds else remedy)
        return place.has(trace)


def on_demand_in(folder: Path, clock: Clock) -> OnDemand:
    """Return the way to windows of processes started with the environment of ``armed``."""
    return OnDemand(folder, clock, lambda pid: nullcontext(ExchangeFolder(UserFiles(), folder)))


class Sockets(NamedTuple):
    """Where a process asks for work: a folder, or None for the abstract namespace."""

    folder: Path | None


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


def sockets_of(pid: int) -> Sockets | None:
    """Return where a process asks for windows by its environment.

    None if it does not ask, or if it is out of reach.
    """
    variables = processes.environment(pid, frozenset({_SWITCH, _SOCKETS}))
    if not variables.get(_SWITCH):
        return None
    folder = variables.get(_SOCKETS)
    if folder and processes.owner_uid(pid) != os.geteuid():
        # the process chose the folder: as root, profd would put a socket wherever it likes
        return None
    try:
        is_reached = sees_our_files(pid) if folder else _shares_network(pid)
    except OSError:
        return None
    return Sockets(Path(folder) if folder else None) if is_reached else None


def _shares_network(pid: int) -> bool:
    """Say whether abstract sockets are the same for a process as here; raises OSError."""
    proc = processes.PROC
    return (proc / str(pid) / "ns/net").readlink() == (proc / "self/ns/net").readlink()


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
        _SWITCH: "1",
        _SOCKETS: str(folder),
        "KINETO_ONDEMAND_TRACE_DIR": str(folder),
        "KINETO_CONFIG": str(config),
        # Above all of Kineto's messages: it would write to stderr that it listens and gets no
        # answer.
        "KINETO_LOG_LEVEL": inherited.get("KINETO_LOG_LEVEL", "5"),
    }
