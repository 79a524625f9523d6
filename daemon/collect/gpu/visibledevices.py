"""Which GPUs a process was told to see: CUDA_VISIBLE_DEVICES, read as CUDA reads it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from profd.daemon.collect.gpu.devices import Gpu

VARIABLES = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})
_INDEX = re.compile(r"[+]?\d+")
# MIG instances as drivers before R470 named them: the UUID of the GPU, its GPU instance, the compute instance in that.
_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-f-]+)/(\d+)/\d+")


def visible_gpus(environment: Mapping[str, str], gpus: Sequence[Gpu]) -> tuple[Gpu, ...] | None:
    """Return the GPUs, or MIG instances, that CUDA shows a process with this environment, in CUDA's order.

    None where the variable is not set: then it is all of them. Also None where numbers stand for another order than
    NVML's and so cannot be told apart: CUDA counts from the fastest GPU on unless CUDA_DEVICE_ORDER says PCI_BUS_ID.
    """
    words = environment.get("CUDA_VISIBLE_DEVICES")
    if words is None:
        return None
    names = [word.strip() for word in words.split(",")]
    whole = [gpu for gpu in gpus if gpu.parent is None]
    in_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.model for gpu in whole}) <= 1
    if not in_order and any(_INDEX.fullmatch(name) for name in names):
        return None
    found: list[Gpu] = []
    for name in names:
        gpu = _named(name, gpus, whole)
        if gpu is None:  # what stands behind the first word that means nothing is not seen either
            break
        if gpu in found:  # CUDA takes a device named twice for a mistake, and shows none
            return ()
        found.append(gpu)
    return tuple(found)


def _named(name: str, gpus: Sequence[Gpu], whole: Sequence[Gpu]) -> Gpu | None:
    """Return the device that one word means: a number, or the beginning of a UUID that no other one has."""
    if _INDEX.fullmatch(name):
        return next((gpu for gpu in whole if gpu.index == int(name)), None)
    old = _OLD_MIG.fullmatch(name)
    if old:
        parts = (gpu for gpu in gpus if gpu.parent is not None and gpu.parent.uuid == old[1])
        return next((gpu for gpu in parts if gpu.instance == int(old[2])), None)
    if not name.startswith(("GPU-", "MIG-")):
        return None
    matching = [gpu for gpu in gpus if gpu.uuid.startswith(name)]
    return matching[0] if len(matching) == 1 else None
