"""Finds a job's RAS service by its processes' listening sockets, and asks it if that is safe.

A thread of the job makes the answer, and some versions of NCCL have faults there that end the job
or destroy its memory. So the version is read first, from the file that is mapped. No other port is
ever connected to: NCCL's own sockets take a stranger's connection for a peer.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from profd.daemon import processes
from profd.daemon.collectives.client import PORT, Address, NoAnswer, ask
from profd.daemon.collectives.status import HostPid, Status
from profd.daemon.interpreter.memory import mapped_files
from profd.daemon.sockets import endpoint, listening
from profd.daemon.userfiles import Unanswered, files_of

VARIABLES = frozenset({"NCCL_RAS_ADDR", "NCCL_RAS_ENABLE"})
"""All that is read of an environment."""
_TRIES = 6
_LOOPBACKS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # by the address of all interfaces

_FIRST_SOUND = (2, 29, 2)
"""The version from which on an answer does no harm. It is JSON since 2.28.7."""
_NAMED = re.compile(r"/libnccl\.so\.(2)\.(\d+)\.(\d+)$")
_DEFINED = re.compile(rb"^#define NCCL_(?:MAJOR|MINOR|PATCH) (\d{1,9})$", re.MULTILINE)
_LIBRARY = re.compile(r"libnccl\.so\S*$")

Version = tuple[int, int, int]


class Answer(msgspec.Struct, frozen=True):
    """An answer of RAS; ``ours`` are the PIDs of the recorded processes, by RAS's host and PID."""

    status: Status
    ours: Mapping[HostPid, int]

    def ranks(self) -> dict[int, int]:
        """Return the rank in the job of each PID of ours; empty if that is not clear."""
        ranks = self.status.world_ranks()
        return {pid: ranks[process] for process, pid in self.ours.items() if process in ranks}


class Ras(msgspec.Struct, frozen=True):
    """The address of the RAS service of some processes, and their PIDs.

    ``pids`` maps each PID that a process has in its own namespace to the one that we see.
    """

    address: Address
    pids: Mapping[int, int]

    def ask(self) -> Answer:
        """Return the status of the job of these processes; raises NoAnswer.

        All processes of all jobs of the user listen at the same port, and the kernel picks one.
        """
        for _ in range(_TRIES):
            status = ask(self.address)
            found = [
                rank.process
                for one in status.communicators
                for rank in one.ranks
                if rank.pid in self.pids
            ]
            if found:  # on another host the same PID is another process
                host = Counter(host for host, _ in found).most_common(1)[0][0]
                return Answer(
                    status,
                    {process: self.pids[process[1]] for process in found if process[0] == host},
                )
            if not status.processes():
                return Answer(status, {})
        raise NoAnswer(
            f"port {self.address.port} is shared with other jobs, and {_TRIES} answers were all "
            "of theirs"
        )


def find(pids: Iterable[int]) -> Ras | None:
    """Return the RAS service of processes; None if none of them has loaded NCCL.

    Raises NoAnswer, in words, if there is none, or it may not be asked.
    """
    pids = list(pids)
    pid, library = library_of(pids)
    if not library:
        return None
    version = version_of(pid, library)
    if version is None:
        raise NoAnswer(
            "the version of NCCL is unknown, and an answer of some versions harms the job"
        )
    if version < _FIRST_SOUND:
        raise NoAnswer(
            f"NCCL {'.'.join(map(str, version))} is not asked: its answer sometimes destroys "
            "memory of the job (NVIDIA/nccl#1762)"
        )
    own_namespace = processes.link(os.getpid(), "ns/net")
    for pid in pids:
        environment = processes.environment(pid, VARIABLES)
        if environment.get("NCCL_RAS_ENABLE") == "0":
            raise NoAnswer("NCCL_RAS_ENABLE=0 turned RAS off")
        port = _port(environment.get("NCCL_RAS_ADDR", ""))
        found = next((address for address in _listening(pid) if address.port == port), None)
        if found is None:
            continue
        if processes.link(pid, "ns/net") != own_namespace:
            raise NoAnswer(
                "the job has a network namespace of its own: record it from inside its container"
            )
        return Ras(found, {processes.own_id(pid) or pid: pid for pid in pids})
    raise NoAnswer(
        "no process listens at NCCL's RAS port: it has no communicator yet, or RAS could not start"
    )


def library_of(pids: Iterable[int], named: re.Pattern[str] = _LIBRARY) -> tuple[int, str]:
    """Return the first process that has loaded NCCL, or the library named so, and its path.

    Returns 0 and "" if there is none.
    """
    mapped = ((pid, path) for pid in pids for _, path in mapped_files(processes.maps(pid)))
    return next((one for one in mapped if named.match(one[1].rpartition("/")[2])), (0, ""))


def version_of(pid: int, library: str) -> Version | None:
    """Return the version of the NCCL at a path by its name, or by its wheel's header, if known."""
    if found := _NAMED.search(library):
        return (int(found[1]), int(found[2]), int(found[3]))
    folder, name, _ = library.rpartition("/lib/libnccl.so")
    if not name or not folder.endswith("/nvidia/nccl"):
        return None
    try:
        numbers = [
            int(number)
            for number in _DEFINED.findall(files_of(pid).read(f"{folder}/include/nccl.h"))
        ]
    except (OSError, Unanswered):
        return None
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _port(address: str) -> int:
    word = address.rpartition(":")[2]
    return int(word) if re.fullmatch("[0-9]{1,5}", word) else PORT


def _listening(pid: int) -> Iterator[Address]:
    """Yield the TCP addresses at which a process itself listens."""
    for one in listening(pid):
        host, port = endpoint(one.local)
        yield Address(_LOOPBACKS.get(host, host), port)
