"""Asks the RAS service of NCCL over its port: one question, bounded in time and in bytes.

The protocol is NCCL's (``src/ras/client.cc``): lines of text, and an answer that ends with the
connection. It blocks.
"""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

from profd.daemon.collectives.status import BadAnswer, Status, parse
from profd.daemon.sockets import hung_up_after

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
        with (
            socket.create_connection(address, within_s) as connection,
            hung_up_after(connection, until_s - time.monotonic()),
            connection.makefile("rb") as answers,
        ):

            def line_for(question: str) -> bytes:
                connection.sendall(f"{question}\n".encode())
                answer: bytes = answers.readline(4096)
                if not answer.endswith(b"\n"):
                    raise BadAnswer("no line in answer")
                return answer

            if not line_for("CLIENT PROTOCOL 2").upper().startswith(b"SERVER PROTOCOL "):
                raise NoAnswer(f"what listens at port {address.port} is not NCCL's RAS")
            line_for(f"TIMEOUT {LEG_TIMEOUT_S}")
            line_for("SET FORMAT json")
            connection.sendall(b"VERBOSE STATUS\n")
            answer = answers.read(MOST_BYTES + 1)
            if len(answer) > MOST_BYTES:
                raise BadAnswer("more than it can have to say")
        return parse(answer)
    except BadAnswer as error:
        why = f"gave {error}"
    except TimeoutError:
        why = f"gave no answer within {within_s:g} s"
    except OSError as error:
        why = f"cannot be asked ({error.strerror or error})"
    raise NoAnswer(f"NCCL's RAS at port {address.port} {why}")
