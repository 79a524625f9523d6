"""Who computes on a GPU, with how much of its memory and of its time. Processes are PIDs here, as NVML has them."""

from __future__ import annotations

from collections import defaultdict

from profd.daemon.clock import MICROSECOND_NS, Clock
from profd.daemon.collect.gpu.devices import Gpu
from profd.daemon.collect.gpu.nvml import Answer, Nvml

# Since driver R470 a process is told with its MIG instance; the functions of R450 fill the same structure.
_LISTS = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
)


def memory_by_pid(nvml: Nvml, gpu: Gpu) -> dict[int, int | None] | None:
    """Return the bytes that each process holds on a device; None for a process of which NVML does not tell.

    None for all where NVML names no processes. One that both computes and draws is listed twice, with the same bytes.
    """
    found: dict[int, int | None] = {}
    answers = [_running(nvml, gpu, functions) for functions in _LISTS]
    if all(answer is None for answer in answers):
        return None
    for process in (process for answer in answers for process in answer or ()):
        known = found.get(process.pid)
        used = process.usedGpuMemory
        found[process.pid] = known if used is None else max(int(used), known or 0)
    return found


def _running(nvml: Nvml, gpu: Gpu, functions: tuple[str, ...]) -> Answer:
    for function in functions:
        answer = nvml.ask(gpu.handle, function)
        if answer is not None or (function, ()) not in gpu.handle.lacking:
            return answer
    return None


class ProcessUtilization:
    """The share of a device's time that each process keeps its SMs busy, since the last reading."""

    def __init__(self, clock: Clock, since_ns: int) -> None:
        self._clock = clock
        self._last_us = self._wall_us(since_ns)

    def read(self, nvml: Nvml, gpu: Gpu) -> dict[int, float]:
        """Return mean shares of the samples that the driver took of each process; who was idle may be missing."""
        now_us = self._wall_us(self._clock.now_ns())
        # A wall clock that was set back would make everything old.
        since_us, self._last_us = min(self._last_us, now_us), now_us
        samples = nvml.ask(gpu.handle, "nvmlDeviceGetProcessUtilization", then=(since_us,)) or ()
        percents: defaultdict[int, list[int]] = defaultdict(list)
        for sample in samples:
            # The driver gives rows of zeros where it has none, and now and then more than there can be.
            if sample.timeStamp > since_us and sample.pid and sample.smUtil <= 100:
                percents[sample.pid].append(sample.smUtil)
        return {pid: sum(values) / len(values) / 100 for pid, values in percents.items()}

    def _wall_us(self, at_ns: int) -> int:
        """Return a time of the run's clock as the driver counts it: microseconds of the wall clock as it goes."""
        return (at_ns + self._clock.wall_jump_ns()) // MICROSECOND_NS
