"""What a process of the tree is for (main, worker, helper), and its rank in the job."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from profd.daemon.naming import is_launcher
from profd.daemon.store.records import Frame, Placement

MAIN, WORKER, HELPER, LAUNCHER = "main", "worker", "helper", "launcher"

_HELPER_COMMAND = re.compile(
    r"multiprocessing[.](resource_tracker|semaphore_tracker|forkserver)|_inductor.compile_worker"
)
_OPTIONS_WITH_A_WORD = ("-X", "-W", "--check-hash-based-pycs")
# (function without its class, end of the file's path): the loop that a worker process stands in all its life.
_WORKER_LOOPS = (
    ("_worker_loop", "torch/utils/data/_utils/worker.py"),
    ("worker", "multiprocessing/pool.py"),
    ("_process_worker", "concurrent/futures/process.py"),
)


def role_of(command: Sequence[str], is_python: bool, parent_role: str | None) -> str:
    """Return the role of a process as far as its command and its parent's role tell.

    ``parent_role`` is None for the root of the tree. A Python below a training process starts as a helper: only its
    stacks can say that it is a worker (see ``is_worker``).
    """
    if not is_python:
        return LAUNCHER if parent_role in (None, LAUNCHER) else HELPER
    if _HELPER_COMMAND.search(" ".join(command)):
        return HELPER
    if is_launcher(_program(command)):
        return LAUNCHER
    return MAIN if parent_role in (None, LAUNCHER) else HELPER


def is_worker(stacks: Collection[Sequence[Frame]]) -> bool:
    """Say whether stacks are those of a worker process."""
    return any(
        frame.function.rpartition(".")[2] == function and frame.file.endswith(file)
        for stack in stacks
        for frame in stack
        for function, file in _WORKER_LOOPS
    )


def _program(command: Sequence[str]) -> str:
    """Return the script or the module that a command line of Python names; empty where it names none."""
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, "")
        if word == "-c" or not word.startswith("-"):
            return "" if word == "-c" else word
        if word in _OPTIONS_WITH_A_WORD:
            next(words, None)
    return ""


def next_ordinal(taken: Collection[int | None]) -> int:
    """Return the lowest number from 1 that no living sibling has: an epoch's new workers take those of the last."""
    number = 1
    while number in taken:
        number += 1
    return number


_NUMBER = re.compile(r"[0-9]{1,6}")


class _Launcher(msgspec.Struct, frozen=True):
    """The variables of one kind of launcher; empty where it has none for it."""

    rank: str
    local_rank: str
    node: str
    world_size: str


# The nearest to the process first: who starts torchrun or mpirun within a Slurm job gives each node's agent a number of
# Slurm's, and all ranks of the node inherit it.
_LAUNCHERS = (
    _Launcher("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE"),
    _Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "", "OMPI_COMM_WORLD_SIZE"),
    _Launcher("PMI_RANK", "MPI_LOCALRANKID", "", "PMI_SIZE"),
    _Launcher("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS"),
)

_RUN_ID, _ADDRESS, _PORT = "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"
_SLURM_JOB, _SLURM_STEP = "SLURM_JOB_ID", "SLURM_STEP_ID"
_NO_ID = "none"  # what torchrun writes where it was given none
_WORD = re.compile(r"[!-~]{1,128}")

VARIABLES = frozenset(
    {name for one in _LAUNCHERS for name in msgspec.structs.astuple(one) if name}
    | {_RUN_ID, _ADDRESS, _PORT, _SLURM_JOB, _SLURM_STEP}
)
"""All that is read of an environment."""


def placement_of(environment: Mapping[str, str]) -> Placement | None:
    """Return the place that the nearest launcher gave a process; None where none did.

    What another launcher wrote is no part of it: its nodes and local ranks are counted otherwise.
    """
    for names in _LAUNCHERS:
        rank = _number(environment, names.rank)
        if rank is not None:
            local_rank, node, world_size = (
                _number(environment, name) for name in (names.local_rank, names.node, names.world_size)
            )
            return Placement(rank, local_rank, node, world_size, _job(environment))
    return None


def in_words(place: Placement) -> str:
    """Say where a process is in its job: ``rank 5 of 8, local rank 1 on node 1``."""
    words = f"rank {place.rank}" + ("" if place.world_size is None else f" of {place.world_size}")
    words += "" if place.local_rank is None else f", local rank {place.local_rank}"
    return words if place.node is None else f"{words} on node {place.node}"


def _job(environment: Mapping[str, str]) -> str | None:
    """Return what all ranks of a job, and no other, have in common; None where nothing says.

    Several trainings may run in one job of Slurm's, so its number comes last.
    """
    run_id = _word(environment, _RUN_ID)
    if run_id is not None and run_id != _NO_ID:
        return run_id
    address, port = _word(environment, _ADDRESS), _word(environment, _PORT)
    if address is not None and port is not None:
        return f"{address}:{port}"
    job, step = _word(environment, _SLURM_JOB), _word(environment, _SLURM_STEP)
    return f"{job}.{step}" if job is not None and step is not None else job


def _word(environment: Mapping[str, str], name: str) -> str | None:
    found = _WORD.fullmatch(environment.get(name, ""))
    return found[0] if found else None


def _number(environment: Mapping[str, str], name: str) -> int | None:
    word = environment.get(name, "")
    return int(word) if _NUMBER.fullmatch(word) else None
