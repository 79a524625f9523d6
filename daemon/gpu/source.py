"""The questions of the collector to a GPU driver, and a memory of those without an answer.

``GpuSource`` is the seam: one small object that hands out a driver's answers as they are. Stamps
are those of the driver's own clock, counters wrap if the device lets them, and a question without
an answer raises ``NoDriverAnswer``. Whoever asks maps, adds up, falls back and asks again. NVML is
the source today (``nvmlsource.py``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.gpu.devices import GpuDevice


class Why(enum.Enum):
    """Why there is no answer, which decides when to ask again."""

    LACKING = "the device or its driver cannot tell"
    REFUSED = "not now: a right or a mode may change within a run"
    EMPTY = "the driver has no value"
    FAILED = "an error that may be gone next time"
    LOST = "the device does not answer any more"


class NoDriverAnswer(Exception):
    """A question to which the driver gave no answer; the message has its words."""

    def __init__(self, why: Why, words: str) -> None:
        super().__init__(words)
        self.why = why


class BusySample(NamedTuple):
    """The share of the time since the sample before in which a GPU, or a process on it, was busy.

    ``stamp_us`` counts microseconds by the driver's clock, whichever that is. ``pid`` is 0 for the
    whole GPU.
    """

    stamp_us: int
    share: float
    pid: int = 0


class DeviceMemory(NamedTuple):
    """The bytes of a device in use, without those that the driver reserves, and all that it has."""

    used_bytes: int
    total_bytes: int


class ByteCount(NamedTuple):
    """A counter of bytes that begins anew at ``wraps_at``; None if it never does."""

    bytes: int
    wraps_at: int | None = None


class DriverCall(NamedTuple):
    """A call into the driver that has not returned: which, and since when."""

    function: str
    since_ns: int


class DriverEvent(NamedTuple):
    """An error that the driver reports by itself.

    It has the device's name, and the Xid, which is None for uncorrectable memory.
    """

    device: str
    xid: int | None


class GpuSource(Protocol):
    """A driver, once it is open. It belongs to one thread; others may read ``calling`` only.

    ``failure`` is the code of the error after which nothing can be asked, and ``failure_text`` its
    words. Every method with a ``gpu`` raises ``NoDriverAnswer``; ``processes`` and
    ``counters`` may leave out what they lack.
    """

    calling: DriverCall | None
    failure: int | None
    failure_text: str

    def open(self) -> bool: ...
    def close(self) -> None: ...

    def gpus(self) -> list[GpuDevice]:
        """Return the GPUs that answer, each followed by its parts."""

    def samples(self, gpu: GpuDevice, after_us: int) -> list[BusySample]:
        """Return what the driver keeps of its samples after a stamp of its own; 0 gives all."""

    def utilization(self, gpu: GpuDevice) -> float:
        """Return the share of the driver's last sampling period in which the GPU was busy."""

    def process_samples(self, gpu: GpuDevice, after_us: int) -> list[BusySample]:
        """Return samples of the processes after a stamp; only of those that were not idle."""

    def memory(self, gpu: GpuDevice) -> DeviceMemory: ...

    def gauge(self, gpu: GpuDevice, name: str) -> float:
        """Return the value of a series as it is now, or of a counter that only grows."""

    def processes(self, gpu: GpuDevice, kind: str) -> dict[int, int | None]:
        """Return the bytes of each process by PID, None if the driver does not tell them."""

    def counters(self, gpu: GpuDevice) -> dict[str, ByteCount]: ...

    def traffic(self, gpu: GpuDevice, name: str) -> float:
        """Measure the bytes a second of a series; takes some 20 ms, and sees those alone."""

    def has_activity(self, gpu: GpuDevice) -> bool: ...

    def activity(self, gpu: GpuDevice) -> dict[str, float]:
        """Return means by series since this was last asked; of the first time nothing."""

    def wait_event(self, timeout_ms: int) -> DriverEvent:
        """Wait for an error that the driver reports; raises ``NoDriverAnswer`` if none came."""


T = TypeVar("T")
AGAIN_NS = 60 * SECOND_NS


class Questions:
    """Asks a source, and keeps in mind for each device what it lacks for ever.

    It also keeps in mind what to ask again each minute.
    """

    def __init__(self, source: GpuSource, clock: Clock) -> None:
        self.source = source
        self.lost: dict[str, str] = {}
        self._clock = clock
        self._silent: dict[tuple[str, ...], tuple[NoDriverAnswer, int | None]] = {}

    def ask(
        self, question: Callable[..., T], gpu: GpuDevice, *what: str, then: tuple[Any, ...] = ()
    ) -> T | None:
        """Return the answer, None if there is none.

        ``what`` says which of the question's quantities is meant, and is remembered with it if the
        device lacks it; ``then`` are arguments that change each time.
        """
        if self.source.failure is not None or gpu.name in self.lost:
            return None
        key = (gpu.name, question.__name__, *what)
        known = self._silent.get(key)
        if known is not None and (known[1] is None or self._clock.now_ns() < known[1]):
            return None
        try:
            answer = question(gpu, *what, *then)
        except NoDriverAnswer as error:
            if error.why is Why.LOST:
                self.lost[gpu.name] = str(error)
            again_ns = {Why.LACKING: None, Why.REFUSED: self._clock.now_ns() + AGAIN_NS}.get(
                error.why, 0
            )
            self._silent[key] = error, again_ns
            return None
        self._silent.pop(key, None)
        return answer

    def why_not(
        self, question: Callable[..., object], gpu: GpuDevice, *what: str
    ) -> NoDriverAnswer | None:
        """Return why a question had no answer when it was last asked.

        None if it had one, or never was.
        """
        known = self._silent.get((gpu.name, question.__name__, *what))
        return known and known[0]
