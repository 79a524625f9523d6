"""Works out what takes longer than a scrape may.

That is the growth of memory, and the rate of steps that are not counted.

A thread looks at the last part of the run, the more seldom the longer that takes: it uses at most a
two-thousandth of a core, so that the whole exporter stays below four of them.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from profd.daemon.analyze.memory import Growth, growth
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import take_steps
from profd.daemon.clock import SECOND_NS, rest_s
from profd.daemon.errors import ProfdError
from profd.daemon.metrics.catalog import MEMORY_GROWING, MEMORY_LEFT, MEMORY_SLOPE, Sample
from profd.daemon.metrics.look import RunLook, rank_of
from profd.daemon.store.entities import Entities, has_ended
from profd.daemon.store.reader import RunReader
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS

EVERY_S = 120.0
SHARE = 0.0005
"""How much of a core looks take at most."""
_MEMORIES = {"rss_bytes": "rss", MEMORY_OF_PROCESS: "gpu"}


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="profd-trends", daemon=True).start()


@dataclass(eq=False)
class Trends:
    """How a run goes, as of the last look at it."""

    start: Callable[[Callable[[], None]], None] = _in_background
    now_s: Callable[[], float] = time.monotonic
    spent_s: Callable[[], float] = time.thread_time

    def __post_init__(self) -> None:
        self._is_looking, self._rests_until_s = False, 0.0
        self._growths: dict[tuple[int, str], Growth] = {}
        self.step_rate: float | None = None
        """The steps a second of the run; None if nothing says yet how many."""

    def take(self, look: RunLook) -> Iterator[Sample]:
        """Yield what the last look found, and look again if it is time."""
        age_ns = look.reader.info.end_ns - look.reader.info.started_ns
        # Before a minute there is little to see.
        if (
            not self._is_looking
            and age_ns >= 60 * SECOND_NS
            and self.now_s() >= self._rests_until_s
        ):
            self._is_looking = True
            self.start(functools.partial(self._look, look.reader.path))
        for process in look.trainers():
            for series, memory in _MEMORIES.items():
                one = self._growths.get((process.id, series))
                if process.ended_ns is not None or (one is None and memory != "rss"):
                    continue
                labels = rank_of(process), memory
                left_s = one.time_to_limit_s if one else None
                is_growing = one is not None and one.verdict == "growing"
                yield look.sample(MEMORY_SLOPE, one.slope_bytes_per_s if one else None, *labels)
                yield look.sample(MEMORY_GROWING, is_growing, *labels)
                yield look.sample(MEMORY_LEFT, math.inf if left_s is None else left_s, *labels)

    def _look(self, path: Path) -> None:
        begun_s = self.spent_s()
        try:
            with RunReader(path, Entities(has_ended)) as reader, reader.one_moment():
                info, phases = reader.info, PhaseIndex(reader)
                every = reader.processes.values()
                trainers = frozenset(
                    row.id for row in every if row.role == "main" and row.ended_ns is None
                )
                found = growth(
                    reader, Selection(from_ns=info.end_ns - 600 * SECOND_NS, processes=trainers)
                )
                recent = Selection(
                    from_ns=max(info.started_ns, info.end_ns - 60 * SECOND_NS), main_threads=True
                )
                self.step_rate = take_steps(reader, recent, phases).per_s
                self._growths = {(one.process, one.series): one for one in found}
        except ProfdError as error:
            # The run may have ended and gone meanwhile; the next scrape meets that itself.
            sys.stderr.write(f"{error}\n")
        finally:
            pause_s = max(EVERY_S, rest_s(self.spent_s() - begun_s, SHARE))
            self._rests_until_s = self.now_s() + pause_s
            self._is_looking = False
