"""What is recorded, and what that costs, while four processes a second start and exit under a
training process.

Run on a quiet machine: ``python benchmarks/churn.py [--seconds 30] [--quick]``; about a minute and
a half. Writes its section of ``docs/measurements.md``, unless quick; ends with 1 where less than 99
% is covered.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import load
from measurements import write_section
from meters import Mark, cores_between
from recorders import Profd, mark

from profd.daemon.analyze.coverage import take_coverage, take_lives
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader

START_S = 10.0
LONG_S = 10.0
LEAST_SHARE = 0.99
PER_SECOND = 4
METHOD = (
    "`benchmarks/churn.py`: `profd attach --headless` at default settings for {seconds} s on "
    "`benchmarks/loads/churning.py`, with {per_second} children a second and without. Main "
    "covered: the share of the main process's time that lies in recordings with samples, to be at "
    "least 99 %. Long-lived sampled: of the processes that were there for {long:.0f} s and more, "
    "those with samples of their own; they are recorded in turns. CPU is in percent of one core, "
    "rate the mean of the main process's recordings."
)


class Seen(NamedTuple):
    """What a recording shows of a churning program, and what it cost.

    ``long_lived`` and ``sampled`` count the processes that stayed, and those of them with samples.
    """

    main_share: float
    processes: int
    long_lived: int
    sampled: int
    errors: int
    start_cores: float
    steady_cores: float
    rate_hz: float

    @property
    def is_whole(self) -> bool:
        """Whether as much is covered as is to be."""
        return self.main_share >= LEAST_SHARE and self.sampled >= LEAST_SHARE * self.long_lived

    def cells(self) -> str:
        """Return the cells of the table."""
        return (
            f"{self.processes} | {self.main_share:.2%} | {self.sampled} of {self.long_lived} | "
            f"{self.errors} | "
            f"{self.start_cores:.1%} | {self.steady_cores:.1%} | {self.rate_hz:.0f} Hz"
        )


def measure(per_second: int, seconds: int) -> Seen:
    """Record a program with so many children a second."""
    with load.running("churning", per_second) as program, tempfile.TemporaryDirectory() as folder:
        started_s = time.monotonic()
        profd = Profd.attach(program.pid, Path(folder) / "run.profd")
        marks = [Mark(0.0, 0.0)]
        for second in range(2, seconds + 1):
            time.sleep(max(started_s + second - time.monotonic(), 0))
            marks.append(mark(profd, started_s))
        profd.end()
        with RunReader(profd.run_file) as reader:
            return see(
                reader,
                cores_between(marks, 0.0, START_S + 0.5),
                cores_between(marks, START_S, seconds + 1),
            )


def see(reader: RunReader, start_cores: float, steady_cores: float) -> Seen:
    """Return what a finished run shows."""
    lives = take_lives(reader)
    long_lived = [
        process.id
        for process in reader.processes.values()
        if (process.ended_ns or reader.info.end_ns) - process.seen_ns >= LONG_S * SECOND_NS
    ]
    mains = {process.id for process in reader.processes.values() if process.role == "main"}
    rates = [row.rate_hz for row in reader.recordings() if row.process in mains]
    return Seen(
        main_share=take_coverage(reader, Selection()).share or 0.0,
        processes=len(reader.processes),
        long_lived=len(long_lived),
        sampled=sum(lives.covers[process].length_ns > 0 for process in long_lived),
        errors=sum(event.kind in ("error", "loss") for event in reader.events()),
        start_cores=start_cores,
        steady_cores=steady_cores,
        rate_hz=sum(rates) / max(len(rates), 1),
    )


def main() -> None:
    """Measure with and without churn, write the section, and fail where too little is covered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument(
        "--quick", action="store_true", help="try it in half a minute; writes nothing down"
    )
    options = parser.parse_args()
    seconds = 14 if options.quick else options.seconds
    head = [
        "children a second",
        "processes",
        "main covered",
        "long-lived sampled",
        "errors",
        "first 10 s",
        "after",
        "rate",
    ]
    lines = [f"| {' | '.join(head)} |", "|---:" * len(head) + "|"]
    runs = {per_second: measure(per_second, seconds) for per_second in (0, PER_SECOND)}
    lines += [f"| {per_second} | {seen.cells()} |" for per_second, seen in runs.items()]
    print("\n".join(lines))
    if not options.quick:
        method = METHOD.format(seconds=seconds, per_second=PER_SECOND, long=LONG_S)
        write_section("Coverage while processes come and go", method, lines)
    sys.exit(not all(seen.is_whole for seen in runs.values()))


if __name__ == "__main__":
    main()
