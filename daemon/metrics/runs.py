"""The runs whose metrics are told: one, or all of a folder while they are recorded. Knows no protocol."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from platform import python_version

from profd.daemon import paths, processes
from profd.daemon.errors import RunUnreadable
from profd.daemon.metrics.catalog import BUILD_INFO, EXPORTER_CPU, EXPORTER_MEMORY, Sample
from profd.daemon.metrics.watch import RunWatch

FRESH_S = 1.0
"""Who asks again so soon is told the same: several may ask at once, and each kind of metric is asked for by itself."""
_YOUNG_S = 60.0


class Folder:
    """The run files of a folder, listed anew only when files came or went."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listed_ns = 0
        self._found: tuple[Path, ...] = ()

    def __call__(self) -> Iterable[Path]:
        """Return the run files; none while there is no such folder."""
        try:
            changed_ns = self._path.stat().st_mtime_ns
        except OSError:
            return ()
        if changed_ns != self._listed_ns:
            self._found = tuple(self._path.glob(f"*{paths.SUFFIX}"))
            self._listed_ns = changed_ns
        return self._found


class Runs:
    """The runs that are recorded now; may be asked by several threads."""

    def __init__(self, find: Callable[[], Iterable[Path]], now_s: Callable[[], float] = time.monotonic) -> None:
        """Tell of those run files that ``find`` returns."""
        self._find = find
        self._now_s = now_s
        self._lock = threading.Lock()
        self._watches: dict[Path, RunWatch] = {}
        self._over: set[Path] = set()
        self._asked_s = -FRESH_S
        self._samples: list[Sample] = []
        self._build = Sample(BUILD_INFO, (metadata.version("profd"), python_version()), 1)

    def samples(self) -> list[Sample]:
        """Return the values of all metrics of all runs; of one that has just ended, the last time."""
        with self._lock:
            if self._now_s() - self._asked_s >= FRESH_S:
                self._look_for_runs()
                self._samples = [self._build, *self._take_all(), *_own_cost()]
                self._asked_s = self._now_s()
            return self._samples

    def is_any(self) -> bool:
        """Say whether any run is recorded now; costs no look at their files."""
        with self._lock:
            return any(watch.is_recorded() for watch in self._watches.values())

    def look_for_runs(self) -> None:
        """Look for runs without asking them anything yet."""
        with self._lock:
            self._look_for_runs()

    def _look_for_runs(self) -> None:
        found = list(self._find())
        self._over.intersection_update(found)
        for path in found:
            if path not in self._over and path not in self._watches:
                self._begin(path)

    def _begin(self, path: Path) -> None:
        try:
            watch = RunWatch(path)
        except RunUnreadable:
            # A young one may only be in the making.
            if _age_s(path) > _YOUNG_S:
                self._over.add(path)
            return
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


def _age_s(path: Path) -> float:
    """Return how long ago a file was written; none that is gone is young."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return _YOUNG_S + 1


def _own_cost() -> list[Sample]:
    rss_bytes = processes.rss_bytes(os.getpid()) or 0
    return [Sample(EXPORTER_CPU, (), time.process_time()), Sample(EXPORTER_MEMORY, (), rss_bytes)]
