"""Which rank of which job a process is, by what its launcher wrote into its environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from profd.daemon.store.records import Placement

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

VARIABLES = frozenset(name for one in _LAUNCHERS for name in msgspec.structs.astuple(one) if name)
"""All that is read of an environment."""


def placement_of(environment: Mapping[str, str]) -> Placement | None:
    """Return the place that the nearest launcher gave a process; None where none did.

    What another launcher wrote is no part of it: its nodes and local ranks are counted otherwise.
    """
    for names in _LAUNCHERS:
        rank = _number(environment, names.rank)
        if rank is not None:
            rest = (_number(environment, name) for name in (names.local_rank, names.node, names.world_size))
            return Placement(rank, *rest)
    return None


def in_words(place: Placement) -> str:
    """Say where a process is in its job: ``rank 5 of 8, local rank 1 on node 1``."""
    words = f"rank {place.rank}" + ("" if place.world_size is None else f" of {place.world_size}")
    words += "" if place.local_rank is None else f", local rank {place.local_rank}"
    return words if place.node is None else f"{words} on node {place.node}"


def _number(environment: Mapping[str, str], name: str) -> int | None:
    word = environment.get(name, "")
    return int(word) if _NUMBER.fullmatch(word) else None
