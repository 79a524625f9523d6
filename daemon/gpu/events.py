"""Waits for the errors that the NVIDIA driver reports by itself: Xid errors and uncorrectable memory errors.

The driver wakes the thread that waits, so this has a thread and an ``Nvml`` of its own.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from profd.daemon.clock import MILLISECOND_NS, Clock
from profd.daemon.gpu.devices import GpuNames, list_gpus
from profd.daemon.gpu.nvml import Answer, Nvml

_DOUBLE_BIT_ECC, _XID = 0x2, 0x8
_WAIT_MS = 400  # a wait cannot be called off, and the end of a run should not have to wait for it
_PAUSE_S = 1.0
_CLOSING_TIMEOUT_S = 2.0
# The Xid errors that training runs meet, in the words of NVIDIA's catalog; others show their number.
XIDS = {
    13: "graphics engine exception, mostly a faulty kernel",
    31: "GPU memory page fault, mostly an illegal address in a kernel",
    43: "GPU stopped processing, after an error in the program",
    45: "preemptive cleanup, after another error or the end of a program",
    48: "double bit ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "ECC page retirement or row remapping",
    64: "ECC page retirement or row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP firmware timed out",
    120: "GSP firmware error",
    140: "unrecovered ECC error",
}


class GpuEvents:
    """The thread that waits; ``take`` is called in it with the name of the device and what happened."""

    def __init__(self, names: GpuNames, clock: Clock, take: Callable[[str, str], None]) -> None:
        self._names = names
        self._clock = clock
        self._take = take
        self._nvml = Nvml(clock)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="profd-gpu-events", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = _CLOSING_TIMEOUT_S) -> None:
        """Stop waiting; a thread that the driver does not let go of is left behind."""
        self._ended.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        nvml = self._nvml
        if not nvml.open():
            return
        events = nvml.ask_driver("nvmlEventSetCreate")
        names: dict[int | None, str] = {}  # by the addresses of the handles
        for gpu in list_gpus(nvml, self._names) if events is not None else ():
            supported = nvml.ask(gpu.handle, "nvmlDeviceGetSupportedEventTypes") if gpu.parent is None else None
            wanted = (supported or 0) & (_XID | _DOUBLE_BIT_ECC)
            if wanted:
                nvml.ask(gpu.handle, "nvmlDeviceRegisterEvents", wanted, then=(events,))
                names[_address(gpu.handle.pointer)] = gpu.name
        while names and nvml.failure is None and not self._ended.is_set():
            before_ns = self._clock.now_ns()
            event = nvml.ask_driver("nvmlEventSetWait_v2", events, _WAIT_MS)
            if event is not None:
                self._take(names.get(_address(event.device), "a GPU"), in_words(event.eventType, event.eventData))
            elif self._clock.now_ns() - before_ns < _WAIT_MS * MILLISECOND_NS // 2:
                self._ended.wait(_PAUSE_S)  # an error that comes at once would come again at once
        if events is not None:
            nvml.ask_driver("nvmlEventSetFree", events)
        nvml.close()


def in_words(kind: int, data: int) -> str:
    if kind == _XID:
        return f"Xid {data}: {XIDS[data]}" if data in XIDS else f"Xid {data}"
    return "a memory error that ECC could not correct"


def _address(pointer: Answer) -> int | None:
    return ctypes.cast(pointer, ctypes.c_void_p).value
