"""A stand-in for the RAS service of NCCL: the same protocol and answers, for a job that a test
makes up.

Written from ``src/ras/client_support.cc`` of NCCL: the protocol and the JSON of v2.30.7-1, the text
of v2.24.3-1 (one count for all operations) and v2.27.7-1 (one for each), as ``VERBOSE STATUS``
gives them. It binds with SO_REUSEPORT as NCCL does, so that several jobs share a port.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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


def answer_in_text(communicators: list[FakeCommunicator], version: str = "2.27.7") -> bytes:
    """Return what ``rasClientRunInit`` and ``rasClientRunComms`` write for VERBOSE STATUS."""
    processes = {(rank.host, rank.pid): rank for one in communicators for rank in one.ranks}
    nodes = len({host for host, _ in processes})
    lines = [
        f"NCCL version {version} compiled with CUDA 12.9",
        "CUDA runtime version 12090, driver version 12090",
        "",
        "Job summary",
        "===========",
        "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"{nodes:7d}  {len(processes) // max(nodes, 1):9d}  {1:11d}  {len(processes):9d}  "
        f"{len(processes):7d}",
        "",
        "Communicators... (0.00s)",
        "=============",
        "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
    ]
    lines += [_row(number, one, version) for number, one in enumerate(communicators)]
    lines += ["", "Errors", "======", "", *_dead(processes.values())]
    for number, one in enumerate(communicators):
        if missing := [rank for rank in one.ranks if not rank.answers]:
            s = "s" if len(missing) > 1 else ""
            lines += [
                f"#{number}-0 ({one.hash:016x}) INCOMPLETE",
                f"  Missing communicator data from {len(missing)} rank{s}",
            ]
            lines += [f"  Rank {rank.rank} -- {_managed(rank)}" for rank in missing]
            lines.append("")
    lines += ["Warnings", "========", ""]
    for number, one in enumerate(communicators):
        if differing := _differing(one, version):
            lines.append(f"#{number}-0 ({one.hash:016x}) MISMATCH")
            for operation in differing:
                lines += [*_counts(one, operation, version), ""]
    return ("\n".join(lines) + "\n").encode()


def _row(number: int, one: FakeCommunicator, version: str) -> str:
    errors = [
        *(["INCOMPLETE"] if any(not rank.answers for rank in one.ranks) else []),
        *(["MISMATCH"] if _differing(one, version) else []),
    ]
    nodes = len({rank.host for rank in one.ranks})
    size, state = len(one.ranks), f"{'RUNNING':>8}  {','.join(errors) or 'OK':>6}"
    return f"{number:5d}  {1:8d}  {nodes:8d}  {size // nodes:8d}  {size:8d}  {size:8d}  {state}"


def _dead(ranks: Iterable[FakeRank]) -> list[str]:
    dead = [rank for rank in ranks if rank.is_dead]
    if not dead:
        return []
    words = "job processes are" if len(dead) > 1 else "job process is"
    named = [
        f"  Process {rank.pid} on node {rank.host} managing GPU {rank.rank % 8}" for rank in dead
    ]
    return [
        "DEAD",
        f"  {len(dead)} {words} considered dead (unreachable via the RAS network)",
        *named,
        "",
    ]


def _managed(rank: FakeRank) -> str:
    return f"GPU {rank.rank % 8} managed by process {rank.pid} on node {rank.host}"


def _count_of(rank: FakeRank, operation: str) -> int:
    return sum(rank.counts.values()) if operation == "collective" else rank.counts[operation]


def _differing(one: FakeCommunicator, version: str) -> list[str]:
    names = ("collective",) if version.startswith(("2.24", "2.25")) else OPERATIONS
    present = [rank for rank in one.ranks if rank.answers]
    return [name for name in names if len({_count_of(rank, name) for rank in present}) > 1]


def _counts(one: FakeCommunicator, operation: str, version: str) -> Iterator[str]:
    yield f"  Communicator ranks have different {operation} operation counts"
    groups = Counter(_count_of(rank, operation) for rank in one.ranks if rank.answers)
    for count, number in sorted(groups.items(), key=lambda item: -item[1]):
        launched = f"launched up to operation {count}" if count else "not launched any operations"
        if number > 1:
            yield f"  {number} ranks have {launched}"
        if number == 1 or number < 0.5 * len(one.ranks):  # RAS_CLIENT_VERBOSE_OUTLIER_FRACTION
            for rank in one.ranks:
                if rank.answers and _count_of(rank, operation) == count:
                    said = f" has {launched}" if number == 1 else ""
                    yield f"  Rank {rank.rank}{said} -- {_managed(rank)}"


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

    @property
    def has_json(self) -> bool:
        """Whether this version knows SET FORMAT."""
        return tuple(int(word) for word in self.version.split(".")) >= (2, 28, 7)

    def _answer(self) -> bytes:
        return (answer_in_json if self.has_json else answer_in_text)(
            self.communicators, self.version
        )

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
                elif command.startswith("timeout ") or (
                    command.startswith("set format ") and self.has_json
                ):
                    connection.sendall(b"OK\n")
                elif command in ("status", "verbose status"):
                    self.asked += 1
                    connection.sendall(self.answer())
                    return
                else:
                    connection.sendall(f"ERROR: Unknown command {command}\n".encode())
