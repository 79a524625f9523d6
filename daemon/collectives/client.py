"""Asks the RAS service of NCCL over its port: one question, bounded in time and in bytes.

The protocol is NCCL's (``src/ras/client.cc``): lines of text, and an answer that ends with the
connection. It blocks.
"""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

from profd.daemon.collectives.status import BadAnswer, Status, parse

PORT = 28028
MOST_BYTES = 32 << 20
"""A rank takes half a kilobyte of JSON in each communicator."""
LEG_TIMEOUT_S = 3
"""How long NCCL waits for other processes; after at most twice that it answers with what it has."""


class NoAnswer(Exception):
    """Nobody answered as NCCL does; the text says what happened."""


class Address(NamedTuple):
    """Where RAS listens: the address of an interface, and a port."""

    host: str
    port: int


def ask(address: Address, within_s: float = 2.0 * LEG_TIMEOUT_S + 2) -> Status:
    """Return the status of the job behind a port; raises NoAnswer, within ``within_s``."""
    until_s = time.monotonic() + within_s
    try:
        with socket.create_connection(address, _left_s(until_s)) as connection:
            lines = _Lines(connection, until_s)
            if not lines.ask("CLIENT PROTOCOL 2").upper().startswith(b"SERVER PROTOCOL "):
                raise NoAnswer(f"what listens at port {address.port} is not NCCL's RAS")
            lines.ask(f"TIMEOUT {LEG_TIMEOUT_S}")
            lines.ask("SET FORMAT json")  # an error before 2.28.7: then the answer is text
            return parse(lines.ask_all("VERBOSE STATUS"))
    except BadAnswer as error:
        raise NoAnswer(f"NCCL's RAS at port {address.port} gave {error}") from None
    except TimeoutError:
        raise NoAnswer(
            f"NCCL's RAS at port {address.port} gave no answer within {within_s:g} s"
        ) from None
    except OSError as error:
        raise NoAnswer(
            f"NCCL's RAS at port {address.port} cannot be asked ({error.strerror or error})"
        ) from None


def _left_s(until_s: float) -> float:
    if (left_s := until_s - time.monotonic()) <= 0:
        raise TimeoutError
    return left_s


class _Lines:
    """A connection of lines, which all have to come before a time."""

    def __init__(self, connection: socket.socket, until_s: float) -> None:
        self._connection, self._until_s, self._buffer = connection, until_s, b""

    def ask(self, line: str) -> bytes:
        """Send a line and return the one that answers it."""
        self._send(line)
        while b"\n" not in self._buffer:
            if len(self._buffer) > 4096 or not (more := self._receive()):
                raise BadAnswer("no line in answer")
            self._buffer += more
        answer, _, self._buffer = self._buffer.partition(b"\n")
        return answer

    def ask_all(self, line: str) -> bytes:
        """Send a line and return all that comes until the other side is done."""
        self._send(line)
        parts = [self._buffer]
        length = len(self._buffer)
        while more := self._receive():
            parts.append(more)
            if (length := length + len(more)) > MOST_BYTES:
                raise BadAnswer("more than it can have to say")
        return b"".join(parts)

    def _send(self, line: str) -> None:
        self._connection.settimeout(_left_s(self._until_s))
        self._connection.sendall(f"{line}\n".encode())

    def _receive(self) -> bytes:
        self._connection.settimeout(_left_s(self._until_s))
        return self._connection.recv(1 << 16)
