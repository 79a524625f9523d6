"""Looks for findings in a run that is being recorded, again and again, and says those that are worth a window.

Runs as a process of its own, ``python -m profd.daemon.analyze.findings.lookout FILE``, which writes a line to stdout
for each look and ends with its stdin: what records a run must not import what judges it. It takes a fiftieth of a
core at most.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from profd.daemon import sighting
from profd.daemon.analyze.findings.catalog import find
from profd.daemon.analyze.findings.finding import INFO
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import ProfdError
from profd.daemon.sighting import Sighting
from profd.daemon.store.reader import RunReader

RECENT_NS = 45 * SECOND_NS
EVERY_S = 10.0
_REST = 49
"""For how many times the CPU time that a look took the next one is put off."""
_NICENESS = 10


def look(path: Path) -> tuple[Sighting, ...] | None:
    """Return the warnings and alarms of the last part of a run; None where it is not live. Raises ProfdError."""
    with RunReader(path) as reader:
        info = reader.info
        if info.state != "live":
            return None
        recent = Selection(from_ns=max(info.started_ns, info.end_ns - RECENT_NS), main_threads=True)
        found = find(reader, recent, PhaseIndex(reader))
    return tuple(Sighting(one.rule, one.title) for one in found if one.severity != INFO)


def watch(path: Path, out: BinaryIO, rest: Callable[[float], bool]) -> None:
    """Say of a run what each look finds until it ends, or ``rest`` of that many seconds is cut short (False).

    Raises ProfdError.
    """
    rest_s = EVERY_S
    while rest(rest_s):
        begun_s = time.process_time()
        sightings = look(path)
        if sightings is None:
            return
        out.write(sighting.encode(sightings))
        out.flush()
        rest_s = max(EVERY_S, _REST * (time.process_time() - begun_s))


def _rest(seconds: float) -> bool:
    """Rest; False as soon as whoever started this process is gone."""
    return not select.select([sys.stdin], [], [], seconds)[0]


def main() -> int:
    """Watch the run that the command line names."""
    os.nice(_NICENESS)
    try:
        watch(Path(sys.argv[1]), sys.stdout.buffer, _rest)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the end of Python says so, too
    except ProfdError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
