"""Where metrics are served: an address in words, and the socket that listens there."""

from __future__ import annotations

import errno
import socket
from typing import NamedTuple

from profd.daemon.errors import UsageError

LOOPBACK = "127.0.0.1"
_LAST_PORT = 65535
_BACKLOG = 16


class Address(NamedTuple):
    """A host, by name or number, and a port; 0 is any port that is free."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """Return the address that ``[HOST:]PORT`` means, on the loopback where no host is given; raises UsageError."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= _LAST_PORT):
        raise UsageError(f"{text} is no address for metrics", "give [HOST:]PORT: 9400, 0.0.0.0:9400 or [::1]:9400")
    return Address(host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port))


def listen(address: Address) -> socket.socket:
    """Return a socket that listens at an address; raises UsageError where that cannot be."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _unusable(address, error) from error
    try:
        # The port is free again as soon as the run before has ended.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _unusable(address, error) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address of the metrics as Prometheus is told it."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def _unusable(address: Address, error: OSError) -> UsageError:
    why = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
    return UsageError(
        f"metrics cannot be served at {address.host} port {address.port} ({why})",
        "choose another port, or 0 for any that is free",
    )
