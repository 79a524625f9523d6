"""The GPUs of an open NVML: which of them a run uses, and what is read of those.

Belongs to one thread and lives as long as the driver answers. Knows nothing of cadence, nor of what becomes of the
records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from profd.daemon.clock import Clock
from profd.daemon.gpu.devices import Gpu, GpuNames, list_gpus
from profd.daemon.gpu.nvml import Nvml
from profd.daemon.gpu.processes import GpuUsers, memory_by_pid
from profd.daemon.gpu.reader import GpuReader
from profd.daemon.store.records import DeviceSeen, Identity, PointsTaken

_Memory = Mapping[int, int | None]

# In readings: who computes where, with how much, is told by two lists a GPU, each of which the driver puts together.
_PROCESSES_EVERY = 2


class GpuSet:
    """All GPUs and MIG instances; ``readers`` are those of the ones that the run uses or has used, by name.

    ``read_ns`` is when they were last read: the driver's buffers hold what came after that.
    """

    def __init__(self, nvml: Nvml, names: GpuNames, clock: Clock, *, since_ns: int, everything: bool) -> None:
        """List what there is, last read at ``since_ns``; with ``everything`` all of it is read, whoever uses it."""
        self.gpus = list_gpus(nvml, names)
        self.readers: dict[str, GpuReader] = {}
        self._nvml = nvml
        self._clock = clock
        self._everything = everything
        self._readings = 0
        self._looked_ns = since_ns
        self.read_ns = since_ns

    def read(self, users: GpuUsers) -> Iterator[DeviceSeen | PointsTaken]:
        """Read once; a device is told before its first points."""
        memory: dict[Gpu, _Memory | None] = {}
        identities: Mapping[int, Identity] = {}
        if self._readings % _PROCESSES_EVERY == 0:
            memory = {gpu: self._memory_of(gpu) for gpu in self.gpus}
            identities = users.identify({gpu: held or {} for gpu, held in memory.items()}, self.gpus)
            yield from self._begin_used(memory, identities, users)
            self._looked_ns = self._clock.now_ns()
        for gpu in self.gpus:
            if gpu.name in self.readers and gpu.handle.lost is None:
                yield from self.readers[gpu.name].read(memory.get(gpu), identities)
        self._readings += 1
        self.read_ns = self._clock.now_ns()

    def lost(self) -> dict[str, str]:
        """Return the devices that have stopped to answer, with NVML's words for it."""
        return {gpu.name: gpu.handle.lost for gpu in self.gpus if gpu.handle.lost is not None}

    def close(self) -> None:
        """Give back what the driver lent."""
        for reader in self.readers.values():
            reader.close()

    def _begin_used(
        self, memory: Mapping[Gpu, _Memory | None], identities: Mapping[int, Identity], users: GpuUsers
    ) -> Iterator[DeviceSeen]:
        for gpu, held in memory.items():
            if gpu.name not in self.readers and self._is_used(gpu, held, identities, users):
                yield from self._begin(gpu)

    def _memory_of(self, gpu: Gpu) -> _Memory | None:
        """Return the processes of a device; those of a GPU that is cut up are told by its instances."""
        return {} if gpu.is_mig_parent else memory_by_pid(self._nvml, gpu)

    def _is_used(self, gpu: Gpu, held: _Memory | None, identities: Mapping[int, Identity], users: GpuUsers) -> bool:
        if self._everything or any(pid in identities for pid in held or ()):
            return True
        if gpu.is_mig_parent:
            return False  # it is as soon as one of its instances is
        return users.may_use(gpu, self.gpus, tells_pids=held is not None)

    def _begin(self, gpu: Gpu) -> Iterator[DeviceSeen]:
        """Read a device from now on, and the GPU that it is a part of: power and temperature are that one's."""
        if gpu.parent is not None and gpu.parent.name not in self.readers:
            yield from self._begin(gpu.parent)
        self.readers[gpu.name] = GpuReader(self._nvml, gpu, self._clock, self._looked_ns)
        memory = self._nvml.ask(gpu.handle, "nvmlDeviceGetMemoryInfo")
        yield DeviceSeen(
            at_ns=self._clock.now_ns(),
            name=gpu.name,
            index=gpu.index,
            model=gpu.model,
            uuid=gpu.uuid,
            memory_bytes=None if memory is None else int(memory.total),
        )
