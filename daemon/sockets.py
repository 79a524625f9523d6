"""Reads TCP sockets, as the kernel lists those of a process's network namespace."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import NamedTuple

from profd.daemon import processes


class TcpSocket(NamedTuple):
    """A socket of any process of the namespace; ``endpoint`` reads its two ends."""

    local: str
    remote: str
    is_listening: bool
    link: str
    """What the link of a descriptor of the socket says: ``socket:[INODE]``."""


def tcp_sockets(pid: int) -> Iterator[TcpSocket]:
    """Yield the sockets of a process's namespace, IPv4 first; none if we may not look."""
    for name in ("tcp", "tcp6"):
        lines = (processes.read(f"{processes.PROC}/{pid}/net/{name}") or b"").decode().splitlines()
        for fields in map(str.split, lines[1:]):
            if len(fields) > 9:
                yield TcpSocket(fields[1], fields[2], fields[3] == "0A", f"socket:[{fields[9]}]")


def endpoint(end: str) -> tuple[str, int]:
    """Return the address and the port of an end of a socket."""
    host, _, port = end.partition(":")
    data = b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
    family = socket.AF_INET if len(data) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, data), int(port, 16)
