"""Bytes a second over PCIe and NVLink, for devices whose GPM metrics do not tell.

From counters where the device has them, else from a measurement that the driver makes when asked. The latter holds the
asking thread up for some 20 ms a direction, and sees that time alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.collect.gpu.devices import Gpu
from profd.daemon.collect.gpu.nvml import Answer, Nvml
from profd.daemon.store.records import Point

_ALL_LINKS = 0xFFFFFFFF
_KIB = 1 << 10
_LACKING = (2, 3, 4)  # an unknown field, one that the device does not have, one that is not for us
# (NVML's number of the field, its scope) → series, bytes per unit of the counter.
COUNTERS = {
    (197, 0): ("gpu_pcie_sent_bytes_per_s", 1),
    (198, 0): ("gpu_pcie_received_bytes_per_s", 1),
    (138, _ALL_LINKS): ("gpu_nvlink_sent_bytes_per_s", _KIB),
    (139, _ALL_LINKS): ("gpu_nvlink_received_bytes_per_s", _KIB),
}
_MEASURED = {"gpu_pcie_sent_bytes_per_s": 0, "gpu_pcie_received_bytes_per_s": 1}


class Traffic:
    """The rates of one GPU; keeps the last reading of each counter."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[str, tuple[int, int]] = {}
        self._fields = tuple(COUNTERS)

    def read(self, nvml: Nvml, gpu: Gpu, told: Collection[str]) -> Iterator[Point]:
        """Yield the rates that are not ``told`` already; at the first reading none that need a counter."""
        counts = self._counts(nvml, gpu) if any(COUNTERS[field][0] not in told for field in self._fields) else {}
        for name, count in counts.items():
            if name not in told:
                yield from self._rate(gpu, name, count)
        for name, direction in _MEASURED.items():
            if name not in counts and name not in told:
                kilobytes_per_s = nvml.ask(gpu.handle, "nvmlDeviceGetPcieThroughput", direction)
                if kilobytes_per_s is not None:
                    yield Point(name, kilobytes_per_s * 1000.0, device=gpu.name)

    def _counts(self, nvml: Nvml, gpu: Gpu) -> dict[str, int]:
        """Return the counters that answer, in bytes."""
        answers = nvml.ask(gpu.handle, "nvmlDeviceGetFieldValues", then=(self._fields,))
        answered = list(zip(self._fields, answers or (), strict=False))
        # What the device lacks is not asked for again.
        lacking = {field for field, answer in answered if answer.nvmlReturn in _LACKING}
        self._fields = tuple(field for field in self._fields if field not in lacking)
        return {
            COUNTERS[field][0]: _integer(answer) * COUNTERS[field][1]
            for field, answer in answered
            if answer.nvmlReturn == 0
        }

    def _rate(self, gpu: Gpu, name: str, count: int) -> Iterator[Point]:
        now_ns = self._clock.now_ns()
        before = self._before.get(name)
        self._before[name] = (now_ns, count)
        # A counter that wrapped or was reset says nothing of this second.
        if before is not None and now_ns > before[0] and count >= before[1]:
            yield Point(name, (count - before[1]) * SECOND_NS / (now_ns - before[0]), device=gpu.name)


def _integer(answer: Answer) -> int:
    """Return the number in a field's union: 4 bytes of it for an unsigned int (type 1), else 8."""
    return int(answer.value.uiVal if answer.valueType == 1 else answer.value.ullVal)
