"""How true profd's stacks and shares are, beside bare py-spy: on programs whose calls and shares are known.

Run on a quiet machine: ``python benchmarks/oracle.py [--seconds 10] [--python PATH ...] [PROGRAM ...]``; writes its
section of ``docs/measurements.md``. The programs lie in ``benchmarks/known``; each declares which function may call
which (``CALLS``; what is not named there may call anything) and how its time is shared (``SHARES``).
"""

from __future__ import annotations

import argparse
import ast
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from measurements import write_section

from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.collect.pyspy import find_py_spy
from profd.daemon.store.reader import RunReader

KNOWN = Path(__file__).with_name("known")
ROOTS = {"<module>", "_run_module_as_main", "_bootstrap", "Thread._bootstrap"}
METHOD = (
    "`benchmarks/oracle.py`: each program is recorded for {seconds} s at 100 Hz by profd, then by `py-spy record "
    "--idle` with and without `--nonblocking`. Impossible: of the stacks kept, those with no frames, a root where no "
    "thread begins, or a call that the program does not make. Failed: reads that py-spy gave up. Dropped: stacks that "
    "profd recognized as torn. Error: the largest distance of a share from the true one, in points."
)
Stack = tuple[str, ...]


class Program(NamedTuple):
    """A program with what is known of it."""

    path: Path
    calls: Mapping[str, set[str]]
    shares: Mapping[str, float]


class Recorded(NamedTuple):
    """What a recorder gave: (stack, samples, weight), root first, and how many stacks it failed to read or dropped."""

    stacks: list[tuple[Stack, int, float]]
    failed: int
    dropped: int


def read_program(name: str) -> Program:
    """Read what a program declares, without running it."""
    path = KNOWN / f"{name}.py"
    declared = {
        node.targets[0].id: node.value
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    calls = ast.literal_eval(ast.unparse(declared["CALLS"]).replace("set()", "[]"))
    return Program(
        path, {caller: set(callees) for caller, callees in calls.items()}, ast.literal_eval(declared["SHARES"])
    )


def record_with_profd(pid: int, seconds: int, folder: Path) -> Recorded:
    """Record a process with profd."""
    run_file = folder / "run.profd"
    words = ["-m", "profd", "attach", str(pid), "--headless", "--duration", str(seconds), "-o", str(run_file)]
    subprocess.run([sys.executable, *words], stderr=subprocess.DEVNULL, check=True)
    with RunReader(run_file) as reader:
        profile = take_profile(reader, Selection())
        stacks = [
            (tuple(frame.function for frame in reader.frames_of(stack)), samples, profile.time_ns[stack])
            for stack, samples in profile.samples.items()
        ]
        recordings = reader.recordings()
    return Recorded(stacks, sum(row.errors for row in recordings), sum(row.torn for row in recordings))


def record_with_py_spy(pid: int, seconds: int, folder: Path, *options: str) -> Recorded:
    """Record a process with py-spy alone."""
    output = folder / "stacks.raw"
    words = ["record", "--idle", "--rate", "100", "--format", "raw", "--duration", str(seconds), *options]
    ran = subprocess.run(
        [find_py_spy(), *words, "--output", str(output), "--pid", str(pid)], capture_output=True, text=True, check=True
    )
    errors = re.search(r"Errors: (\d+)", ran.stdout + ran.stderr)
    return Recorded(list(_collapsed(output)), int(errors[1]) if errors else 0, 0)


def _collapsed(file: Path) -> Iterator[tuple[Stack, int, float]]:
    for line in file.read_text(errors="replace").splitlines():
        stack, _, samples = line.rpartition(" ")
        yield tuple(frame.rpartition(" (")[0] for frame in stack.split(";")), int(samples), float(samples)


def is_impossible(stack: Stack, program: Program) -> bool:
    """Say whether a program cannot stand in a stack."""
    if not stack or stack[0] not in ROOTS:
        return True
    pairs = itertools.pairwise(stack)
    return any(callee not in program.calls[caller] for caller, callee in pairs if caller in program.calls)


def largest_error(stacks: Sequence[tuple[Stack, int, float]], program: Program) -> float:
    """Return the largest distance of a share from the true one, in points."""
    found = {name: sum(weight for stack, _, weight in stacks if name in stack) for name in program.shares}
    whole = sum(found.values()) or 1.0
    return max(100 * abs(found[name] / whole - share) for name, share in program.shares.items())


def row(name: str, recorder: str, recorded: Recorded, program: Program) -> str:
    """Return a row of the table."""
    kept = sum(samples for _, samples, _ in recorded.stacks)
    impossible = sum(samples for stack, samples, _ in recorded.stacks if is_impossible(stack, program))
    tried = kept + recorded.dropped + recorded.failed
    cells = [
        name,
        recorder,
        f"{kept:,}",
        f"{100 * impossible / max(kept, 1):.2f} %",
        f"{100 * recorded.failed / max(tried, 1):.2f} %",
        f"{100 * recorded.dropped / max(tried, 1):.2f} %",
        f"{largest_error(recorded.stacks, program):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def measure(python: str, name: str, seconds: int) -> Iterator[str]:
    """Record one program with each recorder."""
    program = read_program(name)
    process = subprocess.Popen([python, str(program.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            yield f"| {name} | cannot be run by {Path(python).name} |  |  |  |  |  |"
            return
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            yield row(name, "profd", record_with_profd(process.pid, seconds, place), program)
            nonblocking = record_with_py_spy(process.pid, seconds, place, "--nonblocking")
            yield row(name, "py-spy, nonblocking", nonblocking, program)
            yield row(name, "py-spy, blocking", record_with_py_spy(process.pid, seconds, place), program)
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    """Measure all programs with all interpreters, print the tables and write them down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--python", action="append", help="an interpreter to run the programs with")
    parser.add_argument("--dry-run", action="store_true", help="print only")
    parser.add_argument("programs", nargs="*", default=sorted(path.stem for path in KNOWN.glob("*.py")))
    options = parser.parse_args()
    lines: list[str] = []
    for python in options.python or [sys.executable]:
        version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        head = ["program", "recorder", "stacks kept", "impossible", "failed", "dropped", "error"]
        lines += ["", f"{version}:", "", f"| {' | '.join(head)} |", "|---|---|---:|---:|---:|---:|---:|"]
        for name in options.programs:
            for line in measure(python, name, options.seconds):
                print(line, flush=True)
                lines.append(line)
    if not options.dry_run:
        write_section("Truth of stacks and shares", METHOD.format(seconds=options.seconds), lines[1:])


if __name__ == "__main__":
    main()
