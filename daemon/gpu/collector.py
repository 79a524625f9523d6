"""Threads that read the GPUs of a run once a second, and wait for errors of the NVIDIA driver.

A call into the driver may take as long as the driver likes. So these threads may hang, and nothing
else waits for them: ``GpuCollector.check``, called from another thread, watches the one that reads.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterable

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.events import EventKind
from profd.daemon.gpu.answers import DriverCall
from profd.daemon.gpu.devices import GpuNames
from profd.daemon.gpu.driverclock import POLL_NS
from profd.daemon.gpu.events import GpuEvents
from profd.daemon.gpu.nvml import Failure, explain
from profd.daemon.gpu.nvmlsource import NvmlSource
from profd.daemon.gpu.reader import GpuSet
from profd.daemon.gpu.users import GpuUsers
from profd.daemon.store.records import EventHappened, Identity, Put, Record

INTERVAL_NS, RETRY_NS = SECOND_NS, 30 * SECOND_NS
CLOSING_TIMEOUT_S = 0.5


class GpuCollector:
    """The thread that reads.

    ``put`` takes its records, in that thread or in the one that calls ``check``.
    """

    def __init__(
        self,
        clock: Clock,
        put: Put,
        *,
        everything: bool = False,
        in_container: bool = False,
    ) -> None:
        """Read the GPUs that the run uses, with ``everything`` all of them, from ``start`` on."""
        self.clock = clock
        self._put = put
        self._everything = everything
        self._in_container = in_container
        self._identities: tuple[Identity, ...] = ()
        self._names = GpuNames()
        self._source = NvmlSource(clock, self._names)
        self._has_listed = False
        self._users = GpuUsers(clock)
        self._gpus: GpuSet | None = None
        self._events: GpuEvents | None = None
        self._read_ns = clock.now_ns()
        self._retry_ns = 0
        self._failure_reported = False
        self._lost_reported: set[str] = set()
        self._used: set[str] = set()
        self._blocking: DriverCall | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="profd-gpu", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self, identities: Iterable[Identity]) -> None:
        self._identities = tuple(identities)

    def check(self) -> None:
        """Report a call into the driver that does not return, and its end: about once a second."""
        call, now_ns = self._source.calling, self.clock.now_ns()
        if self._blocking is not None and call is not self._blocking:
            seconds = (now_ns - self._blocking.since_ns) / SECOND_NS
            self._report(f"NVML answers again; {self._blocking.function} took {seconds:.0f} s")
            self._blocking = None
        # Without persistence mode the driver wakes each GPU to open and list it, in 6 to 24 s in
        # all.
        patience_ns = 3 * SECOND_NS if self._has_listed else 30 * SECOND_NS
        if self._blocking is None and call is not None and now_ns - call.since_ns > patience_ns:
            self._report(
                f"NVML does not answer ({call.function}): until it does there are no GPU counters"
            )
            self._blocking = call

    def close(self, timeout_s: float = CLOSING_TIMEOUT_S) -> None:
        """Stop; leave a thread that hangs in the driver behind, and throw its readings away."""
        self._ended.set()
        self.join(timeout_s)

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread, which comes by itself if there is no driver."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            due_ns = self.clock.now_ns()
            while not self._ended.is_set() and self._tick():
                due_ns = max(due_ns + INTERVAL_NS, self.clock.now_ns())
                self._look_until(due_ns)
            self._release()
        except Exception as error:  # noqa: BLE001  the end of a thread: whatever it was is reported
            traceback.print_exception(error)
            self._hand_over(
                EventHappened(self.clock.now_ns(), EventKind.ERROR, f"GPUs are not read: {error!r}")
            )

    def _look_until(self, due_ns: int) -> None:
        """Wait for the next reading; meanwhile look at devices whose clock is estimated."""
        gpus = self._gpus
        while gpus is not None and gpus.polls and self.clock.now_ns() + POLL_NS < due_ns:
            time.sleep(POLL_NS / SECOND_NS)  # half of what waiting for an event costs
            if self._ended.is_set():
                return
            gpus.look()
        self._ended.wait(max(due_ns - self.clock.now_ns(), 0) / SECOND_NS)

    def _tick(self) -> bool:
        """Read once, or try to open the driver again; False if that is hopeless."""
        if (self._gpus is None or self._lost_reported) and self.clock.now_ns() >= self._retry_ns:
            self._release()
            self._try_later()
            if not self._source.open():
                self._report_failure()
                # Nobody installs a driver under a running program.
                return self._source.failure not in (Failure.LIBRARY_NOT_FOUND, Failure.NO_MODULE)
            self._begin()
        if self._gpus is not None:
            self._read(self._gpus)
        return True

    def _begin(self) -> None:
        self._gpus = GpuSet(
            self._source, self.clock, since_ns=self._read_ns, everything=self._everything
        )
        self._has_listed = True
        self._events = GpuEvents(NvmlSource(self.clock, self._names), self.clock, self._take_event)
        if self._failure_reported:
            self._failure_reported = False
            self._report("the NVIDIA driver answers again")
        for name in self._lost_reported & {gpu.name for gpu in self._gpus.gpus}:
            self._lost_reported.discard(name)
            self._report(f"{name} answers again")

    def _read(self, gpus: GpuSet) -> None:
        self._users.take(self._identities, gpus.gpus)
        # All at once: the first record wakes the writer, which would else commit a few at a time.
        for record in list(gpus.read(self._users)):
            self._hand_over(record)
        self._used |= gpus.readers.keys()
        for remark in gpus.remarks():
            self._report(remark)
        for name, words in gpus.lost.items():
            if name not in self._lost_reported and name in self._used:
                self._lost_reported.add(name)
                self._try_later()
                self._report(f"{name} does not answer any more: {words}")
        if self._source.failure is None:
            self._read_ns = gpus.read_ns
        else:
            self._release()
            self._try_later()
            self._report_failure()

    def _try_later(self) -> None:
        self._retry_ns = self.clock.now_ns() + RETRY_NS

    def _release(self) -> None:
        """Close all that NVML has open, its events first, as they hold the library."""
        if self._events is not None:
            self._events.close()
        self._events = self._gpus = None
        self._source.close()

    def _report_failure(self) -> None:
        """Report once why there are no counters, or no more.

        Nothing if the machine has nothing of NVIDIA.
        """
        assert self._source.failure is not None
        why = explain(
            self._source.failure, self._source.failure_text, in_container=self._in_container
        )
        if self._used and not self._failure_reported:
            self._report(f"the NVIDIA driver is gone: {self._source.failure_text}")
        elif not why.is_plain and not self._failure_reported:
            self._report(f"no GPU counters: {why.what}; {why.remedy}")
        self._failure_reported = True

    def _take_event(self, name: str, text: str) -> None:
        if name in self._used:
            self._report(f"{name}: {text}")

    def _report(self, text: str) -> None:
        self._hand_over(EventHappened(self.clock.now_ns(), EventKind.GPU, text))

    def _hand_over(self, record: Record) -> None:
        if not self._ended.is_set():
            self._put(record)
