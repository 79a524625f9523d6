"""Errors that the NVIDIA driver reports by itself: Xid and uncorrected memory errors."""

from __future__ import annotations

import threading
from collections.abc import Callable

from profd.daemon.clock import MILLISECOND_NS, Clock
from profd.daemon.gpu.answers import NoDriverAnswer, Why
from profd.daemon.gpu.nvmlsource import NvmlSource

_WAIT_MS = 1000  # a wait cannot be called off, and a driver that is gone is to be let go soon
# The Xid errors that training runs meet, in the words of NVIDIA's catalog; others show their
# number.
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
    """Waits for errors, in a thread and with a source of its own.

    ``take`` is called in the thread with the name of the device and the error in words.
    """

    def __init__(self, source: NvmlSource, clock: Clock, take: Callable[[str, str], None]) -> None:
        self._source, self._clock, self._take = source, clock, take
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="profd-gpu-events", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop waiting; a thread that hangs in the driver is left behind."""
        self._ended.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        source = self._source
        if not source.open():
            return
        while source.failure is None and not self._ended.is_set():
            before_ns = self._clock.now_ns()
            try:
                event = source.wait_event(_WAIT_MS)
            except NoDriverAnswer as error:
                if error.why is Why.LACKING:
                    break
                if self._clock.now_ns() - before_ns < _WAIT_MS * MILLISECOND_NS // 2:
                    self._ended.wait(1.0)  # an error that comes at once would come again at once
            else:
                self._take(event.device, in_words(event.xid))
        source.close()


def in_words(xid: int | None) -> str:
    if xid is None:
        return "a memory error that ECC could not correct"
    return f"Xid {xid}: {XIDS[xid]}" if xid in XIDS else f"Xid {xid}"
