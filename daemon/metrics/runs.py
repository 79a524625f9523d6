"""All metrics of one run, and of all live runs of a folder."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from platform import python_version

from profd.daemon import VERSION, processes
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.metrics import parts
from profd.daemon.metrics.catalog import BUILD_INFO, EXPORTER_CPU, EXPORTER_MEMORY, Sample
from profd.daemon.metrics.look import Integral, RunLook
from profd.daemon.store.entities import Entities, has_ended
from profd.daemon.store.reader import RunReader

OLD_NS = 600 * SECOND_NS
"""How long ago counters begin if a run is older at the first look: to read all would take long."""


class RunWatch:
    """A run that is followed; belongs to one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Follow the run at ``path``; raises RunUnreadable if it is none."""
        self._path, self._living = path, Entities(has_ended, only_main_threads=True)
        with RunReader(path, self._living) as reader:
            self._info = info = reader.info
        self._began_ns = max(info.started_ns, info.end_ns - OLD_NS)
        self._last_recording = 0
        self._integrals: dict[int, Integral] = {}
        phases = PhaseIndex(self._living)
        self._forget_many = phases.forget_many
        self._parts: tuple[Callable[[RunLook], Iterable[Sample]], ...] = (
            parts.state,
            parts.StepCounts().take,
            parts.PhaseSeconds(phases).take,
            parts.IdleSeconds(phases).take,
            parts.gpus,
            parts.processes,
            parts.shared_memory,
            parts.Quality().take,
            parts.own_cost,
            parts.findings,
        )

    def is_recorded(self) -> bool:
        """Say whether the run goes on; costs no look at its file."""
        return self._info.state == "live" and processes.is_running(*self._info.recorder)

    def take(self) -> list[Sample]:
        """Return the values of all metrics now, each once; raises RunUnreadable."""
        # Open for this look alone: a recorder that closes its run finds no reader in the file.
        self._forget_many()
        with RunReader(self._path, self._living) as reader, reader.one_moment():
            self._info = reader.info
            recordings = tuple(
                reader.recordings_after(self._last_recording, from_ns=self._began_ns)
            )
            self._last_recording = max((row.id for row in recordings), default=self._last_recording)
            series = [row for row in reader.list_series(*parts.SERIES) if row.os_tid is None]
            newest = reader.newest_values([row.id for row in series])
            look = RunLook(reader, series, self._began_ns, recordings, newest, self._integrals)
            # Two processes may say that they are one rank: the younger one is believed, as one
            # series has one value.
            samples = {sample[:2]: sample for part in self._parts for sample in part(look)}
        return list(samples.values())


FRESH_S = 1.0
"""How long the samples stay the same: several may ask at once, some for each kind of metric."""


class Runs:
    """The runs that are recorded now; may be asked by several threads."""

    def __init__(
        self, find: Callable[[], Iterable[Path]], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._find, self._now_s = find, now_s
        self._lock = threading.RLock()
        self._watches: dict[Path, RunWatch] = {}
        self._over: set[Path] = set()
        self._asked_s = -FRESH_S
        self._samples: list[Sample] = []
        self._build = Sample(BUILD_INFO, (VERSION, python_version()), 1)

    def samples(self) -> list[Sample]:
        """Return the values of all metrics of all runs.

        Of one that has just ended, the last time.
        """
        with self._lock:
            if self._now_s() - self._asked_s >= FRESH_S:
                self.look_for_runs()
                stat = processes.read_stat(os.getpid())
                self._samples = [
                    self._build,
                    *self._take_all(),
                    Sample(EXPORTER_CPU, (), time.process_time()),
                    Sample(EXPORTER_MEMORY, (), stat.rss_bytes if stat else 0),
                ]
                self._asked_s = self._now_s()
            return self._samples

    def is_any(self) -> bool:
        """Say whether any run is recorded now; costs no look at their files."""
        with self._lock:
            return any(watch.is_recorded() for watch in self._watches.values())

    def look_for_runs(self) -> None:
        """Look for runs without asking them anything yet."""
        with self._lock:
            found = list(self._find())
            self._over.intersection_update(found)
            for path in found:
                if path in self._over or path in self._watches:
                    continue
                try:
                    watch = RunWatch(path)
                except RunUnreadable:
                    with contextlib.suppress(OSError):
                        if time.time() - path.stat().st_mtime <= 60:
                            continue  # it may only be in the making
                    self._over.add(path)
                else:
                    if watch.is_recorded():
                        self._watches[path] = watch
                    else:
                        self._over.add(path)

    def _take_all(self) -> list[Sample]:
        samples: list[Sample] = []
        for path, watch in list(self._watches.items()):
            try:
                samples += watch.take()
            except RunUnreadable as error:
                sys.stderr.write(f"{error}\n")
            else:
                if watch.is_recorded():
                    continue
            del self._watches[path]
            self._over.add(path)
        return samples
