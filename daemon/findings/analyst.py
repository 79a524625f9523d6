"""Looks for findings in a run while it is recorded, and in all of it once it has ended.

It is a process of its own (``api/wholerun.py``), because the recorder of a run must not import
what judges the run, and a look holds Python's lock for seconds in a run of a day. It writes a line
of JSON to stdout for each look (``records.FindingsTaken``) and ends after those at the whole run. A
line on stdin has it look at once: the run has ended, or is about to. A letter has it look as soon
as it may: somebody reads what it finds. It ends with its stdin, even during a look. It takes at
most a hundredth of a core.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from profd.daemon import paths, processes, rights, standardstreams
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.trend import LEAST_SPAN_S
from profd.daemon.clock import SECOND_NS, rest_s
from profd.daemon.errors import ProfdError
from profd.daemon.findings.catalog import (
    OF_THE_RUN,
    RULES,
    analysis_name,
    as_stored,
    find,
    findings_in,
    ranked,
)
from profd.daemon.findings.finding import Finding
from profd.daemon.store.bound import MemoryBound, bounded_memory
from profd.daemon.store.entities import Entities
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import FindingsTaken
from profd.daemon.store.rows import ProcessRow

RECENT_NS = 45 * SECOND_NS
"""A look covers this time: a slow moment shows soon, and is gone soon after it has ended."""
EVERY_S = 8.0
"""The least seconds between two looks at a run.

With the five seconds of a recording, and those until a cause is sure, a cause is known within 20 s.
"""
UNREAD_S = 40.0
"""The seconds between looks while nobody reads the findings.

They are less than ``RECENT_NS``, so that no moment of the run is left out.
"""
SHARE, SHARE_OF_THE_RUN = 0.0075, 0.0005
"""How much of a core looks take at most; the second is for rules on the whole run.

Together that is less than a hundredth, the latter a twentieth of it: growth lasts for minutes. CPU
time counts, and not the duration of looks: looks are slow if cores are short, and that is when
findings are wanted.
"""
_ENDING_S = 0.05
"""How often to check for the last records of a run that is about to end."""
_NICENESS = 10
_OF_THE_MOMENT = tuple(rule for rule in RULES if rule not in OF_THE_RUN)
FORGOTTEN_NS = 2 * RECENT_NS
SHORT_NS = round((LEAST_SPAN_S - 5) * SECOND_NS)  # readings may come after its end


def is_over(row: ProcessRow, now_ns: int) -> bool:
    """Say whether no rule needs a process any more.

    Such a process ended before what is recent, and too soon to show a trend.
    """
    ended_ns = now_ns if row.ended_ns is None else row.ended_ns
    return not row.is_main and ended_ns < min(now_ns - FORGOTTEN_NS, row.seen_ns + SHORT_NS)


class Analyst:
    """Looks at one run; ``rest_s`` is how long to pause after the last look.

    The reader and the index keep what a look learns of stacks and recordings: the next look reads
    only what is new.
    """

    def __init__(
        self,
        reader: RunReader,
        now_s: Callable[[], float] = time.monotonic,
        spent_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._reader, self._now_s, self._spent_s = reader, now_s, spent_s
        self._phases = PhaseIndex(reader)
        self._told: dict[str, tuple[Finding, int | None]] = {}
        """By rule what was told, and since when its number or line is another one, if it is."""
        self._of_the_run: tuple[Finding, ...] = ()
        self._of_the_run_due_s = 0.0
        self.rest_s = 0.0

    def look(self) -> FindingsTaken:
        """Return what slows the last part of a live run; raises ProfdError."""
        begun_s, reader, phases = self._spent_s(), self._reader, self._phases
        phases.forget_many()
        with reader.one_moment():
            info = reader.info
            recent = Selection(
                from_ns=max(info.started_ns, info.end_ns - RECENT_NS), main_threads=True
            )
            found = find(reader, recent, phases, _OF_THE_MOMENT)
            # The first look computes what all looks need: it delays none.
            took_s = self._spent_s() - begun_s if self.rest_s else 0.0
            self.rest_s = max(EVERY_S, rest_s(took_s, SHARE))
            if self._now_s() >= self._of_the_run_due_s:
                begun_s = self._spent_s()
                self._of_the_run = find(reader, recent, phases, OF_THE_RUN)
                took_s = self._spent_s() - begun_s
                self._of_the_run_due_s = self._now_s() + rest_s(took_s, SHARE_OF_THE_RUN)
        said = map(self._say, (*found, *self._of_the_run))
        return FindingsTaken(info.end_ns, as_stored(ranked(said)))

    def _say(self, found: Finding) -> Finding:
        """Return a finding in the words that were told before, unless its evidence has moved.

        A number or a line has moved if it is another one for as long as that which was told was
        looked at: other work on the machine comes and goes, and two lines may cost the same.
        """
        now_ns = self._reader.info.end_ns
        told, since_ns = self._told.get(found.rule, (found, None))
        seen, before = found.evidence, told.evidence
        is_told = seen.line == before.line and seen.measures[0].agrees(before.measures[0])
        since_ns = None if is_told else since_ns or now_ns
        looked_ns = min(before.to_ns - before.from_ns, RECENT_NS)
        if not found.repeats(told) or (since_ns and now_ns - since_ns >= looked_ns):
            told, since_ns = found, None
        self._told[found.rule] = told, since_ns
        seen = msgspec.structs.replace(seen, line=told.evidence.line, call=told.evidence.call)
        return msgspec.structs.replace(told, evidence=seen)


def _open(path: Path, known: Entities | None = None) -> RunReader:
    reader = RunReader(path, known)
    # In KiB, a fifth of the default: little is read twice.
    reader.value(None, "PRAGMA cache_size = -400")
    return reader


def look_at_all(path: Path) -> FindingsTaken:
    """Return what slows a run that has ended; raises ProfdError."""
    with _open(path) as reader, reader.one_moment():
        phases = PhaseIndex(reader)
        found = findings_in(reader, MAIN_THREADS, phases)
        return FindingsTaken(reader.info.end_ns, as_stored(found), analysis_name())


LookAtEnd = Callable[[Path], Iterable[FindingsTaken]]
"""Gives what is to be kept of the whole of a run that has ended."""


class SessionOrders:
    """What the session says: somebody reads the findings, or the run is about to end."""

    def __init__(self) -> None:
        self._said = threading.Condition()
        self._is_ending = self._is_read = False

    def listen(self, descriptor: int) -> None:
        """Take what is said until nothing more comes."""
        while words := os.read(descriptor, 64):
            with self._said:
                self._is_ending, self._is_read = self._is_ending or b"\n" in words, True
                self._said.notify()

    def rest(self, least_s: float) -> bool:
        """Wait at least so long, longer while nobody reads; say whether the run is about to end."""
        with self._said:
            self._said.wait_for(lambda: self._is_ending, least_s)
            self._said.wait_for(lambda: self._is_read, max(UNREAD_S - least_s, 0.0))
            self._is_read = False
            return self._is_ending


def watch(path: Path, out: BinaryIO, rest: Callable[[float], bool], look_at_end: LookAtEnd) -> None:
    """Write what each look at a run finds, and what ``look_at_end`` gives; raises ProfdError.

    ``rest`` waits at least a number of seconds and says whether the run is about to end.
    """
    with bounded_memory(path) as bound:
        _watch_live(path, out, rest, bound)
        bound.renew()
        for taken in look_at_end(path):
            _write(out, taken)


def _watch_live(
    path: Path, out: BinaryIO, rest: Callable[[float], bool], bound: MemoryBound
) -> None:
    with _open(path, Entities(is_over)) as reader:
        analyst = Analyst(reader)
        while reader.run_info().state == "live":
            bound.renew()
            _write(out, analyst.look())
            processes.trim_heap()
            if rest(analyst.rest_s):
                while reader.run_info().state == "live":
                    time.sleep(_ENDING_S)


def _write(out: BinaryIO, taken: FindingsTaken) -> None:
    out.write(msgspec.json.encode(taken) + b"\n")
    out.flush()


def _listen(orders: SessionOrders) -> None:
    orders.listen(0)
    os._exit(0)


def main(look_at_end: LookAtEnd) -> int:
    standardstreams.open_stderr()
    os.nice(_NICENESS)
    processes.volunteer(100)  # before the session that started it
    # It reads a file of its own user that holds what a training wrote.
    rights.drop(Path(sys.argv[1]).resolve().parent, paths.own_file("findings.toml").parent)
    orders = SessionOrders()
    threading.Thread(target=_listen, args=(orders,), name="profd-listener", daemon=True).start()
    try:
        watch(Path(sys.argv[1]), sys.stdout.buffer, orders.rest, look_at_end)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the end of Python says so, too
    except ProfdError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    return 0
