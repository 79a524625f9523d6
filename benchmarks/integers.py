"""Whether integers are read right out of code that never holds still, and what a reading costs.

Run on a quiet machine: ``python benchmarks/integers.py [--readings 1000000] [--dry]``, about five
minutes; writes its section of ``docs/measurements.md`` and ends with 1 where a value was wrong or
the program was disturbed. Each Python of ``tests/support/interpreters.py`` that is here runs a
program whose variables are multiples of 7, in loops of a few microseconds among other integers;
frames, generators and objects come and go, and the dictionary of the module grows. What a range has
left never rises, and is never more than it began with. The program ends by itself, and has to have
computed what it computes alone.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import proportions
import pytest
from measurements import write_section

from profd.daemon.interpreter.frames import Interpreter, PythonFrame, open_interpreter
from profd.daemon.interpreter.integers import (
    Global,
    IntegerReader,
    Moved,
    Variable,
    local_of,
)
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.interpreter.objects import Missing

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.interpreters import VERSIONS, python

VARIABLES = ("local", "captured", "passing", "of_module")
COMES_AND_GOES = ("passing",)
"""Not the same from one reading to the next: its value may be lower than before."""
TOTAL = 1 << 60
ROUNDS = (1, 40)
"""Of some microseconds each."""
PROGRAM = """
import hashlib, sys
of_module = 0
digest = hashlib.sha256()

def comes_and_goes(start, wait):
    passing = 7 * start
    for other in range(40):
        passing += 7
        for _ in range(wait):
            noise = sum(range(other)) + passing + 1
    return passing

def train(rounds, wait):
    global of_module
    local = captured = 0
    def look():
        return captured
    for turn in range(rounds):
        for other in range(20):
            local += 7
            captured += 7
            of_module += 7
            for _ in range(wait):
                noise = sum(range(other)) + local + 1
        total = comes_and_goes(turn, wait)
        if turn % 1000 == 0:
            globals()["name%d" % (turn // 1000 % 5000)] = turn
            digest.update(b"%d %d %d %d" % (local, look(), of_module, total))
            if is_asked and not waits():
                break
    print(turn, digest.hexdigest(), flush=True)

def waits():
    return not select.select([sys.stdin], [], [], 0)[0]

import select
is_asked = len(sys.argv) < 3
print("ready", flush=True)
train(1 << 60 if is_asked else int(sys.argv[2]), int(sys.argv[1]))
"""


class Found(NamedTuple):
    """What readings of one variable came to."""

    read: int
    moved: int
    absent: int
    wrong: int
    cpu_s: float


def measure(executable: str, rounds: int, readings: int) -> tuple[dict[str, Found], bool]:
    """Read each variable so often, in a program that does so many rounds of other things between
    two changes.

    Returns what was found, and whether the program computed what it does alone.
    """
    command, pipe = [executable, "-c", PROGRAM, str(rounds)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as program:
        try:
            assert program.stdout is not None
            program.stdout.readline()
            interpreter = open_interpreter(program.pid)
            found = {
                name: read(interpreter, variable, readings, goes_up=name not in COMES_AND_GOES)
                for name, variable in variables(interpreter)
            }
            said, _ = program.communicate("\n")
        finally:
            program.kill()
    turns = int(said.split()[0]) + 1
    alone = subprocess.run([*command, str(turns)], stdout=pipe, text=True, check=True).stdout
    return found, said == alone.partition("\n")[2]


def variables(interpreter: Interpreter) -> Iterator[tuple[str, Variable]]:
    """Yield the variables by name."""
    thread = interpreter.main_thread()

    def frame(function: str) -> PythonFrame:
        while True:
            try:
                found = [one for one in interpreter.stack(thread) if one.code.name == function]
            except Unreadable:  # changed meanwhile
                continue
            if found:
                return found[0]

    for name in VARIABLES[:3]:
        local = local_of(frame("comes_and_goes" if name == "passing" else "train"), name)
        assert local is not None
        yield name, local
    yield VARIABLES[3], Global(frame("train").globals, VARIABLES[3])


def read(interpreter: Interpreter, variable: Variable, readings: int, *, goes_up: bool) -> Found:
    """Read a variable so often, whose value ``goes_up`` from one reading to the next."""
    reader = IntegerReader(interpreter, interpreter.main_thread())
    values = moved = absent = wrong = 0
    last = 0
    begun_s = time.process_time()
    for _ in range(readings):
        try:
            value = reader.read(variable)
        except Moved:
            moved += 1
            continue
        except Missing:
            absent += 1
            continue
        values += 1
        wrong += value % 7 != 0 or (goes_up and value < last)
        last = value
    return Found(values, moved, absent, wrong, time.process_time() - begun_s)


def pythons() -> dict[str, str]:
    """Return the Pythons that are here, by version."""
    found = {}
    for version in VERSIONS:
        try:
            found[version] = python(version)
        except pytest.skip.Exception:
            continue
    return found


def main() -> int:
    """Measure all; returns 1 where a value was wrong, or a program was disturbed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--readings", type=int, default=1_000_000, help="of all variables and versions together"
    )
    parser.add_argument("--dry", action="store_true", help="write no measurements")
    options = parser.parse_args()
    here, rows = pythons(), []
    total = wrong = disturbed = 0
    each = -(-options.readings // (len(here) * len(ROUNDS) * len(VARIABLES)))
    for (version, executable), rounds in itertools.product(here.items(), ROUNDS):
        found, is_same = measure(executable, rounds, each)
        disturbed += not is_same
        for name, one in found.items():
            total, wrong = total + one.read, wrong + one.wrong
            cost_us = one.cpu_s / each * 1e6
            rows.append(
                f"| {version} | {rounds} | {name} | {one.read:,} of {each:,} | {one.wrong} | "
                f"{cost_us:.0f} µs |"
            )
            print(rows[-1], flush=True)
    said = (
        f"{wrong} of {total:,} values were wrong (95 %: fewer than "
        f"{proportions.most(wrong, total):.1e} of all);"
        f" {disturbed} of {len(here) * len(ROUNDS)} programs computed something else than alone."
    )
    print(said)
    if not options.dry:
        write_section(
            "Integers read out of restless code",
            "`benchmarks/integers.py`: variables that are multiples of 7 and go up, in loops of a "
            "few microseconds; CPU time of a reading, which is of five looks at least.",
            [
                said,
                "",
                "| Python | variable | readings | with a value | wrong | CPU |",
                "|---|---|---|---|---|---|",
                *rows,
            ],
        )
    return 1 if wrong or disturbed else 0


if __name__ == "__main__":
    sys.exit(main())
