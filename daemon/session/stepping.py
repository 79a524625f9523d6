"""Follow the training processes of a tree.

One thread reads in turn their step counters, their garbage collectors and their locks.
"""

from __future__ import annotations

import threading
import time
import traceback
from functools import partial

from profd.daemon.clock import Clock
from profd.daemon.events import EventKind
from profd.daemon.interpreter.garbage import Collector
from profd.daemon.interpreter.lock import Lock
from profd.daemon.interpreter.looks import LookReader
from profd.daemon.steps.reader import StepReader
from profd.daemon.store.records import EventHappened, Identity, Put
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Member

STEPS, COLLECTIONS, LOCK = "steps", "garbage collections", "waits for the lock"
_RARER = 4
"""In a steady run looks at collectors and locks are rarer by this factor: each wakes a thread."""


class Stepping:
    """The readers of steps, of garbage collections and of the interpreter's lock.

    ``put`` takes their records, in the thread that reads.
    """

    def __init__(self, clock: Clock, put: Put) -> None:
        self._clock, self._put = clock, put
        self._readers: dict[tuple[Identity, str], StepReader | LookReader] = {}
        self._ended: list[StepReader | LookReader] = []
        self._lock = threading.Lock()
        self.is_steady = self._is_closing = False
        self._news = threading.Event()
        """Set when a process came or went, or when the thread is to end.

        Otherwise the thread sleeps until the next reading is due.
        """
        self._thread = threading.Thread(target=self._run, name="profd-steps", daemon=True)

    def begin(self, member: Member) -> None:
        """Follow a member from now on, if it trains and is not followed already."""
        identity = member.identity
        if member.role != roles.MAIN:
            return
        if isinstance(known := self._readers.get((identity, STEPS)), StepReader):
            if known.is_idle:
                known.renew(member.origin)
            return
        with self._lock:
            self._readers[identity, STEPS] = StepReader(
                identity,
                self._clock,
                self._put,
                origin=member.origin,
                leader=lambda: member.leader and member.leader.ident,
            )
            lock = partial(
                Lock, leader=lambda: member.leader.os_tid if member.leader else identity.pid
            )
            for what, find in ((COLLECTIONS, Collector), (LOCK, lock)):
                self._readers[identity, what] = LookReader(identity, self._clock, self._put, find)
        self._news.set()
        if self._thread.ident is None:
            self._thread.start()

    def renew(self, member: Member) -> None:
        """Follow a member that has become another program. Keep what was counted before."""
        if isinstance(known := self._readers.get((member.identity, STEPS)), StepReader):
            known.renew(member.origin if member.is_training else None)

    def end(self, identity: Identity) -> None:
        with self._lock:
            keys = [key for key in self._readers if key[0] == identity]
            self._ended += [self._readers.pop(key) for key in keys]
        self._news.set()

    def close(self) -> None:
        """Take the last reading of each living process, and read no more.

        Blocks for as long as that takes.
        """
        self._is_closing = True
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join(2.0)

    def _run(self) -> None:
        due_s: dict[tuple[Identity, str], float] = {}
        while not self._is_closing:
            self._news.clear()
            with self._lock:
                readers, ended, self._ended = dict(self._readers), self._ended, []
            for reader in ended:
                reader.end()
            due_s = {key: due_s.get(key, 0.0) for key in readers}
            key = min(due_s, key=due_s.__getitem__, default=None)
            if key is None:
                self._news.wait()
                continue
            if (wait_s := due_s[key] - time.monotonic()) > 0 and self._news.wait(wait_s):
                continue
            try:  # many ranks are read in turn: together they take no more than one does
                pause_s = readers[key].poll() * len({identity for identity, _ in readers})
                pause_s *= _RARER if self.is_steady and key[1] != STEPS else 1
                due_s[key] = pause_s + time.monotonic()
            except Exception as error:  # noqa: BLE001  the recording goes on without
                traceback.print_exception(error)
                text = f"{key[1]} are not followed: {error!r}"
                self._put(EventHappened(self._clock.now_ns(), EventKind.ERROR, text, key[0]))
                with self._lock:
                    self._readers.pop(key, None)
        for reader in (*self._ended, *self._readers.values()):
            reader.end()
