"""How often the words of a finding change in a run that goes on as it is.

``python benchmarks/steadyfindings.py RUN_FILE ... [--print-only]``: replays the looks of a live run
on runs that have ended, one every eight seconds, and counts the texts that change after the second
minute. Writes its section of ``docs/measurements.md``. ``benchmarks/diagnosis.py --seconds 600
--keep FOLDER`` makes such runs.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import msgspec
from measurements import write_section

from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.analyst import EVERY_S, Analyst
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo

SETTLED_S = 120.0
MOST_CHANGES = 1


class ReaderUpTo(RunReader):
    """A run as its file was at a time: nothing after ``until_ns`` counts."""

    until_ns = 0

    def run_info(self) -> RunInfo:
        info = super().run_info()
        return msgspec.structs.replace(info, end_ns=min(info.end_ns, self.until_ns))


def told(path: Path) -> dict[str, list[tuple[float, str]]]:
    """Return by rule what was said of a run, with the second since which: once for each change.

    A finding that is away for a while and says the same again has not changed.
    """
    found: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    with ReaderUpTo(path) as reader:
        run = RunReader.run_info(reader).time
        analyst = Analyst(reader, lambda: reader.until_ns / SECOND_NS, lambda: 0.0)
        for number in range(2, int(run.length_ns / SECOND_NS / EVERY_S) + 1):
            reader.until_ns = run.from_ns + int(number * EVERY_S * SECOND_NS)
            for one in analyst.look().findings:
                said = found[one.rule]
                if not said or said[-1][1] != one.title:
                    said.append((number * EVERY_S, one.title))
    return found


def main() -> None:
    """Replay the runs, print each text that changes, and write the counts down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print-only", action="store_true")
    parser.add_argument("--beside", default="", help="what else the machine did, for the record")
    parser.add_argument("run_files", type=Path, nargs="+")
    options = parser.parse_args()
    lines = ["| run | finding | texts in all | changes after two minutes |", "|---|---|---:|---:|"]
    for path in options.run_files:
        for rule, said in told(path).items():
            late = [text for at_s, text in said[1:] if at_s > SETTLED_S]
            lines.append(f"| {path.parent.name} | {rule} | {len(said)} | {len(late)} |")
            if len(late) > MOST_CHANGES:
                print(
                    *(f"{path.parent.name} {at_s:4.0f} s: {text}" for at_s, text in said), sep="\n"
                )
    print("\n".join(lines))
    if not options.print_only:
        method = (
            "`benchmarks/steadyfindings.py`: the looks of a live run, one every 8 s, on recordings "
            "of programs of `benchmarks/corpus` that go on as they are."
            f"{options.beside and f' Beside {options.beside}.'}"
        )
        write_section("Words of findings in a steady run", method, lines)


if __name__ == "__main__":
    main()
