"""A client of Kineto's on-demand protocol: what libkineto inside a torch process does, by hand."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
from pathlib import Path

_numbers = itertools.count()
_TIMEOUT_S = 20.0


def message(kind: bytes, payload: bytes) -> bytes:
    """Return a datagram."""
    return struct.pack("=Q32s", len(payload), kind) + payload


def inquiry(*pids: int, kinds: int = 3) -> bytes:
    """Return the question of a process, named first, and its ancestors."""
    return message(b"req", struct.pack(f"=iiq{len(pids)}i", kinds, len(pids), 0, *pids))


def context(pid: int) -> bytes:
    """Return what a process with a GPU says at its start."""
    return message(b"ctxt", struct.pack("=iiq", 0, pid, 0))


class KinetoClient:
    """A socket in the folder of a daemon."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f"dynoconfigclient{os.getpid()}-{next(_numbers)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(self._path))

    def __enter__(self) -> KinetoClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._path.unlink()

    def send(self, datagram: bytes) -> None:
        self._socket.sendto(datagram, str(self._folder / "dynolog"))

    async def ask(self, datagram: bytes) -> bytes:
        self.send(datagram)
        return await self.answer()

    async def answer(self) -> bytes:
        return await asyncio.wait_for(
            asyncio.get_running_loop().sock_recv(self._socket, 65536), _TIMEOUT_S
        )
