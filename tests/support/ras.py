"""A stand-in for the RAS service of NCCL: the same protocol and answers, for a job that a test
makes up.

Written from ``src/ras/client_support.cc`` of NCCL v2.30.7-1: the protocol, and the JSON of
``VERBOSE STATUS``. It binds with SO_REUSEPORT as NCCL does, so that several jobs share a port.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

OPERATIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
"""``ncclFunc_t``, in its order."""


@dataclass
class FakeRank:
    """A rank of a communicator: ``answers`` is False where RAS does not reach it, ``is_dead`` after
    60 s of that.
    """

    rank: int
    pid: int
    host: str = "10.0.0.1"
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPERATIONS, 0))
    init_state: int = 0
    finalize_called: bool = False
    answers: bool = True
    is_dead: bool = False

    def launch(self, operation: str = "AllReduce", times: int = 1) -> None:
        self.counts[operation] += times


@dataclass
class FakeCommunicator:
    """A communicator of NCCL."""

    ranks: list[FakeRank]
    hash: int = 0x27A079B828FF1A75

    def launch(self, operation: str = "AllReduce", *, but: Iterable[int] = ()) -> None:
        left_out = set(but)
        for rank in self.ranks:
            if rank.rank not in left_out:
                rank.launch(operation)


def job_of(size: int, first_pid: int = 1000, per_host: int = 64) -> FakeCommunicator:
    """Return a communicator of ranks that follow each other, some on each host."""
    ranks = [
        FakeRank(rank, first_pid + rank, f"10.0.0.{1 + rank // per_host}") for rank in range(size)
    ]
    return FakeCommunicator(ranks)


def answer_in_json(communicators: list[FakeCommunicator], version: str = "2.30.7") -> bytes:
    """Return what ``rasDumpCommsToJSON`` writes."""
    rows = []
    for one in communicators:
        present = [rank for rank in one.ranks if rank.answers]
        missing = [rank for rank in one.ranks if not rank.answers]
        rows.append(
            {
                "hash": f"0x{one.hash:x}",
                "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
                "size": len(one.ranks),
                "ranks_count": len(present),
                "missing_ranks_count": len(missing),
                "ranks": [
                    {**_place(rank), "status": _flags(rank), "collective_counts": rank.counts}
                    for rank in present
                ],
                "missing_ranks": [
                    {
                        **_place(rank),
                        "status": {"unresponsive": True, "considered_dead": rank.is_dead},
                    }
                    for rank in missing
                ],
            }
        )
    head = {
        "nccl_version": version,
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-01-19 13:06:53",
        "communicators_count": len(rows),
        "communicators": rows,
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
    }
    return (json.dumps(head, indent=2) + "\n").encode()


def _place(rank: FakeRank) -> dict[str, object]:
    gpu = rank.rank % 8
    return {"rank": rank.rank, "host": rank.host, "pid": rank.pid, "cuda_dev": gpu, "nvml_dev": gpu}


def _flags(rank: FakeRank) -> dict[str, object]:
    return {
        "init_state": rank.init_state,
        "async_error": 0,
        "finalize_called": rank.finalize_called,
        "destroy_flag": False,
        "abort_flag": False,
    }


class RasServer:
    """Answers as the RAS thread of a job does; ``answer`` may be replaced by anything."""

    def __init__(
        self, communicators: list[FakeCommunicator], version: str = "2.30.7", port: int = 0
    ) -> None:
        self.communicators, self.version = communicators, version
        self.answer: Callable[[], bytes] = self._answer
        self.asked = 0
        self.greeting = b"SERVER PROTOCOL 2\n"
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen(64)
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> RasServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)

    def _answer(self) -> bytes:
        return answer_in_json(self.communicators, self.version)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, contextlib.suppress(OSError):
                    self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        """Answer the lines of one client, as ``rasClientEventLoop`` does, until a status has been
        sent.
        """
        with connection.makefile("rb") as lines:
            for line in lines:
                command = line.decode(errors="replace").strip().lower()
                if command.startswith("client protocol "):
                    connection.sendall(self.greeting)
                elif command.startswith(("timeout ", "set format ")):
                    connection.sendall(b"OK\n")
                elif command in ("status", "verbose status"):
                    self.asked += 1
                    connection.sendall(self.answer())
                    return
                else:
                    connection.sendall(f"ERROR: Unknown command {command}\n".encode())
