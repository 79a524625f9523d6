"""Reads TCP and UDP sockets, as the kernel lists those of a process's network namespace.

It also bounds how long one of our own may take.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple

from profd.daemon import processes


class InternetSocket(NamedTuple):
    """A socket of any process of the namespace; ``endpoint`` reads its two ends."""

    local: str
    remote: str
    is_listening: bool
    is_udp: bool
    link: str
    """What the link of a descriptor of the socket says: ``socket:[INODE]``."""


def internet_sockets(pid: int) -> Iterator[InternetSocket]:
    """Yield the sockets of a process's namespace, IPv4 first; none if we may not look."""
    for name in ("tcp", "tcp6", "udp", "udp6"):
        lines = processes.read_text(f"{processes.PROC}/{pid}/net/{name}").splitlines()
        for fields in map(str.split, lines[1:]):
            if len(fields) > 9:
                is_listening, link = fields[3] == "0A", f"socket:[{fields[9]}]"
                is_udp = name.startswith("udp")
                yield InternetSocket(fields[1], fields[2], is_listening, is_udp, link)


def listening(pid: int) -> Iterator[InternetSocket]:
    """Yield the TCP sockets at which a process itself listens."""
    own = set(processes.open_files(pid))
    for one in internet_sockets(pid):
        if one.is_listening and one.link in own:
            yield one


def endpoint(end: str) -> tuple[str, int]:
    """Return the address and the port of an end of a socket."""
    host, _, port = end.partition(":")
    data = b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
    family = socket.AF_INET if len(data) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, data), int(port, 16)


@contextlib.contextmanager
def hung_up_after(connection: socket.socket, within_s: float) -> Iterator[None]:
    """Shut a connection down after a time, and then raise TimeoutError.

    A socket's own timeout begins anew with each byte that comes.
    """
    is_late = threading.Event()

    def hang_up() -> None:
        is_late.set()  # set before its reader can see the end
        with contextlib.suppress(OSError):  # it has ended
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(within_s, hang_up)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if is_late.is_set():
            raise TimeoutError
