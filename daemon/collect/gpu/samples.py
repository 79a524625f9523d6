"""Utilization of a GPU from the driver's own buffer of samples, with the times at which the driver took them.

The driver samples several times a second by itself; read once a second, the buffer gives all of it. A sample says
which share of the time since the one before any kernel ran. Knows NVML's times and the run's clock, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS, Clock
from profd.daemon.collect.gpu.devices import Gpu
from profd.daemon.collect.gpu.nvml import Answer, Nvml

_GPU_UTILIZATION_SAMPLES = 1
_UNSIGNED_INT = 1
FINEST_NS = 50 * MILLISECOND_NS
"""Samples closer to each other than this are put together, so that no driver can flood a run file."""
_FUTURE_NS = SECOND_NS
"""A sample later than now by more than this is none: the wall clock was set back after it."""


class UtilizationSample(msgspec.Struct, frozen=True):
    """The share of the time up to ``at_ns``, since the sample before, in which the GPU was busy."""

    at_ns: int
    share: float


class UtilizationSamples:
    """The samples of one GPU, each read once."""

    def __init__(self, clock: Clock, since_ns: int) -> None:
        """Begin at a time: what the driver's buffer holds of earlier ones is left there."""
        self._clock = clock
        self._last_ns = since_ns

    def read(self, nvml: Nvml, gpu: Gpu) -> list[UtilizationSample] | None:
        """Return what is new in the buffer, in order of time; None where the device has no such buffer."""
        now_ns = self._clock.now_ns()
        # The driver's times are those of the wall clock as it goes, the run's of the wall clock as it was.
        jump_ns = self._clock.wall_jump_ns()
        last_us = max(self._last_ns + jump_ns, 0) // MICROSECOND_NS
        answer = nvml.ask(gpu.handle, "nvmlDeviceGetSamples", _GPU_UTILIZATION_SAMPLES, then=(last_us,))
        if answer is None:
            lacks = ("nvmlDeviceGetSamples", (_GPU_UTILIZATION_SAMPLES,)) in gpu.handle.lacking
            return None if lacks else []
        kind, samples = answer
        percents = {
            sample.timeStamp * MICROSECOND_NS - jump_ns: _percent(kind, sample.sampleValue) for sample in samples
        }
        new = [(at_ns, percents[at_ns]) for at_ns in sorted(percents) if self._last_ns < at_ns <= now_ns + _FUTURE_NS]
        before_ns, self._last_ns = self._last_ns, new[-1][0] if new else self._last_ns
        return list(_put_together(before_ns, [(at_ns, percent) for at_ns, percent in new if 0 <= percent <= 100]))


def _put_together(before_ns: int, samples: list[tuple[int, float]]) -> Iterator[UtilizationSample]:
    """Yield samples at least ``FINEST_NS`` apart; closer ones become one, their mean weighted by their lengths."""
    busy, start_ns, since_ns = 0.0, before_ns, before_ns
    for position, (at_ns, percent) in enumerate(samples):
        busy += percent / 100 * (at_ns - since_ns)
        since_ns = at_ns
        if at_ns - start_ns >= FINEST_NS or position == len(samples) - 1:
            yield UtilizationSample(at_ns, busy / (at_ns - start_ns))
            busy, start_ns = 0.0, at_ns


def _percent(kind: int, value: Answer) -> float:
    """Return the value of a sample from the union that NVML has it in."""
    return float(value.uiVal if kind == _UNSIGNED_INT else value.dVal if kind == 0 else value.ullVal)
