"""Watch a server by its own metrics.

A server without requests may stand still; with requests pending, that is a hang.

This asks only the loopback, only if an option says so, and only for the page of metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.events import EventKind
from profd.daemon.hangs.cause import Cause, sentence_of, waits_for_requests
from profd.daemon.hangs.look import Look
from profd.daemon.sockets import hung_up_after
from profd.daemon.stacks.source import own_frames
from profd.daemon.store.records import EventHappened, Record


class _Names(msgspec.Struct):
    """The names of servers' metrics for their requests, from serving.toml."""

    pending: frozenset[str]
    done: frozenset[str]


_NAMES = msgspec.toml.decode(Path(__file__).with_name("serving.toml").read_bytes(), type=_Names)
_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{[^\n]*\})?[ \t]+(\S+)", re.MULTILINE)
_MOST_BYTES = 8 << 20
WITHIN_S = 2.0
"""The timeout of a page, including all that it sends."""
_READ_EVERY_S = 5.0


class Requests(NamedTuple):
    """How many requests a server has taken and not answered, and a measure of its work.

    The measure is a number that grows with the work.
    """

    pending: float
    done: float


class NoMetrics(Exception):
    """There is no page of metrics with known names; the text says why."""


def read_requests(port: int, within_s: float = WITHIN_S) -> Requests:
    """Return the requests of the server whose metrics are at a port of the loopback.

    Raises NoMetrics. Blocks.
    """
    import http.client  # loads all of email, and few runs serve

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=within_s)
    page = f"port {port}/metrics"
    try:
        connection.connect()
        with hung_up_after(connection.sock, within_s):
            connection.request("GET", "/metrics", headers={"Connection": "close"})
            response = connection.getresponse()
            data = response.read(_MOST_BYTES) if response.status == 200 else b""
    except TimeoutError:
        raise NoMetrics(f"{page} does not answer (not within {within_s:g} s)") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoMetrics(f"{page} does not answer ({error})") from None
    finally:
        connection.close()
    values = list(_values(data.decode(errors="replace")))
    pending = [value for name, value in values if name in _NAMES.pending]
    if not pending:
        raise NoMetrics(f"{page} has no number of requests that profd knows")
    return Requests(sum(pending), sum(value for name, value in values if name in _NAMES.done))


def _values(text: str) -> Iterator[tuple[str, float]]:
    for name, word in _LINE.findall(text):
        with contextlib.suppress(ValueError):
            if math.isfinite(value := float(word)):
                yield name, value


class RequestProgress:
    """Whether a server with requests answers them."""

    def __init__(
        self, clock: Clock, read: Callable[[], Requests], put: Callable[[Record], object]
    ) -> None:
        self._clock, self._read, self._put = clock, read, put
        self._last: Requests | None = None
        self._answers = True
        self._read_ns = self._since_ns = 0

    async def take(self) -> None:
        """Read the requests if that is due."""
        if self._clock.now_ns() - self._read_ns < _READ_EVERY_S * SECOND_NS:
            return
        self._read_ns = self._clock.now_ns()
        try:
            found = await asyncio.to_thread(self._read)
        except NoMetrics as reason:
            if self._answers:
                self._put(
                    EventHappened(
                        self._clock.now_ns(),
                        EventKind.NOTE,
                        f"the requests are not known: {reason}",
                    )
                )
            self._answers = False
            if self._last is not None:  # it answered before
                self._since_ns = self._since_ns or self._clock.now_ns()
            return
        before, self._last, self._answers = self._last, found, True
        goes_on = before is None or found.done != before.done or found.pending < before.pending
        if found.pending <= 0 or goes_on:
            self._since_ns = 0
        if found.pending > 0 and not self._since_ns:
            self._since_ns = self._clock.now_ns()

    def stuck_s(self) -> float:
        """Return for how long requests have been pending without one being served; else 0."""
        return (self._clock.now_ns() - self._since_ns) / SECOND_NS if self._since_ns else 0.0

    def has_served_since(self, at_ns: int) -> bool:
        """Return whether requests were served since a time, or none are pending any more."""
        return not self._since_ns or self._since_ns > at_ns

    def find_cause(self, look: Look) -> Cause:
        """Return what is pending, and where the threads stand that do not wait for requests."""
        pending = int(self._last.pending) if self._last else 0
        text = f"{pending} request{'s are' if pending != 1 else ' is'} pending, and none is served"
        text = text if self._answers else "the server's metrics no longer answer"
        rows = [row for row in look.standing if row.stack and not waits_for_requests(row)]
        own = [row for row in rows if own_frames(row.stack)]
        own.sort(key=lambda row: not row.is_main)
        return Cause("requests", "; ".join([text, *map(sentence_of, own[:3])]))
