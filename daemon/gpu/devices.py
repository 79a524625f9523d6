"""The GPUs and MIG instances of a machine, and those that a process may see.

A device keeps its name for the whole run, even if NVML renumbers the devices because another one is
gone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence

import msgspec


class GpuDevice(msgspec.Struct, eq=False, kw_only=True):
    """A GPU, or a MIG instance of one.

    ``name`` is that of its series (``gpu0``, ``gpu0-mig1``), ``index`` NVML's number of the GPU,
    ``minor`` that of ``/dev/nvidia<minor>``. A MIG instance has its GPU as ``parent``, and the id
    of its GPU instance as ``instance``. ``handle`` is for the source that listed the device.
    """

    handle: object
    name: str
    index: int
    uuid: str
    model: str
    minor: int | None = None
    parent: GpuDevice | None = None
    instance: int | None = None
    is_mig_parent: bool = False


class GpuNames:
    """Names by UUID, for the length of a run; of any thread."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, uuid: str, wanted: str) -> str:
        """Return the name of the device with this UUID: the wanted one, or one like it if taken."""
        with self._lock:
            if uuid not in self._names:
                taken = set(self._names.values())
                others = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
                self._names[uuid] = next(name for name in (wanted, *others) if name not in taken)
            return self._names[uuid]


VARIABLES = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})
_INDEX = re.compile(r"[+]?\d{1,9}")


def visible_gpus(
    environment: Mapping[str, str], gpus: Sequence[GpuDevice]
) -> tuple[GpuDevice, ...] | None:
    """Return the GPUs, or MIG instances, that CUDA shows a process with this environment, in order.

    None if the variable is not set: CUDA shows all of them. Also None if its numbers follow
    an order that is not NVML's: CUDA counts from the fastest GPU on unless CUDA_DEVICE_ORDER says
    PCI_BUS_ID.
    """
    words = environment.get("CUDA_VISIBLE_DEVICES")
    if words is None:
        return None
    names = [word.strip() for word in words.split(",")]
    whole = [gpu for gpu in gpus if gpu.parent is None]
    in_order = (
        environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        or len({gpu.model for gpu in whole}) <= 1
    )
    if not in_order and any(_INDEX.fullmatch(name) for name in names):
        return None
    found: list[GpuDevice] = []
    for name in names:
        gpu = _named(name, gpus, whole)
        if gpu is None:  # CUDA ignores all words behind the first one that means nothing, too
            break
        if gpu in found:  # CUDA takes a device named twice for a mistake, and shows none
            return ()
        found.append(gpu)
    return tuple(found)


def _named(name: str, gpus: Sequence[GpuDevice], whole: Sequence[GpuDevice]) -> GpuDevice | None:
    """Return the device that one word means: a number, or the beginning of one UUID."""
    found: Sequence[GpuDevice] = ()
    if _INDEX.fullmatch(name):
        found = [gpu for gpu in whole if gpu.index == int(name)]
    elif name.startswith(("GPU-", "MIG-")):
        found = [gpu for gpu in gpus if gpu.uuid.startswith(name)]
    return found[0] if len(found) == 1 else None
