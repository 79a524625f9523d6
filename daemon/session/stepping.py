"""Follows the steps of the training processes of a tree: one thread reads the counters of all of them in turn."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable

from profd.daemon.clock import Clock
from profd.daemon.steps.reader import StepReader
from profd.daemon.store.records import EventHappened, Identity, Record
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Member


class Stepping:
    """The readers of steps; ``put`` takes their records, in the thread that reads."""

    def __init__(self, clock: Clock, put: Callable[[Record], object]) -> None:
        self._clock, self._put = clock, put
        self._readers: dict[Identity, StepReader] = {}
        self._ended: list[StepReader] = []
        self._lock = threading.Lock()
        self._is_closing = False
        self._news = threading.Event()
        """A process came or went, or there is to be an end: else the thread sleeps until the next reading is due."""
        self._thread = threading.Thread(target=self._run, name="profd-steps", daemon=True)

    def begin(self, member: Member) -> None:
        """Follow the steps of a member from now on, if it trains and is not followed already."""
        if member.role != roles.MAIN or member.identity in self._readers:
            return
        with self._lock:
            self._readers[member.identity] = StepReader(member.identity, self._clock, self._put)
        self._news.set()
        if self._thread.ident is None:
            self._thread.start()

    def end(self, identity: Identity) -> None:
        with self._lock:
            if identity in self._readers:
                self._ended.append(self._readers.pop(identity))
        self._news.set()

    def take_output(self, data: bytes) -> None:
        """Use what a launched script wrote, unless several processes train: it may be of any of them."""
        readers = list(self._readers.values())
        if len(readers) == 1:
            readers[0].hear(data)

    def close(self) -> None:
        """Take the last reading of each process that lives, and read no more. Blocks for as long as that takes."""
        self._is_closing = True
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join(2.0)

    def _run(self) -> None:
        due_s: dict[Identity, float] = {}
        while not self._is_closing:
            self._news.clear()
            with self._lock:
                readers, ended, self._ended = dict(self._readers), self._ended, []
            for reader in ended:
                reader.end()
            due_s = {identity: due_s.get(identity, 0.0) for identity in readers}
            identity = min(due_s, key=due_s.__getitem__, default=None)
            if identity is None:
                self._news.wait()
                continue
            if (wait_s := due_s[identity] - time.monotonic()) > 0:
                self._news.wait(wait_s)
                continue
            try:  # many ranks are read in turn: together they take no more than one does
                due_s[identity] = readers[identity].poll() * len(readers) + time.monotonic()
            except Exception as error:  # noqa: BLE001  the recording goes on without steps
                traceback.print_exception(error)
                text = f"steps are not followed: {error!r}"
                self._put(EventHappened(self._clock.now_ns(), "error", text, identity))
                with self._lock:
                    self._readers.pop(identity, None)
        for reader in (*self._ended, *self._readers.values()):
            reader.end()
