"""What is known of the programs in ``benchmarks/truth/known``: their calls, and when they were in
which phase.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import signal
import subprocess
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

KNOWN = Path(__file__).with_name("known")
ROOTS = {"<module>", "_run_module_as_main", "_bootstrap", "Thread._bootstrap"}
Stack = tuple[str, ...]


class Program(NamedTuple):
    """A program: which function may call which (one that is not named may call any), and its phases
    in turn.

    A phase is the name of a function; time in one without a name is left out.
    """

    path: Path
    calls: Mapping[str, frozenset[str]]
    turns: tuple[str, ...]

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases that have a name."""
        return tuple(phase for phase in dict.fromkeys(self.turns) if phase)

    def phase_of(self, stack: Stack) -> str | None:
        """Return the phase that a stack shows, None where it shows none."""
        return next((phase for phase in self.phases if phase in stack), None)

    def is_impossible(self, stack: Stack) -> bool:
        """Say whether the program cannot stand in a stack."""
        if not stack or stack[0] not in ROOTS:
            return True
        return any(
            callee not in self.calls.get(caller, {callee})
            for caller, callee in itertools.pairwise(stack)
        )


class Diary:
    """When each thread of a program began its phases."""

    def __init__(self, tracks: Sequence[Sequence[int]], program: Program) -> None:
        self._tracks = tracks
        self._program = program

    def shares(self, from_ns: int, to_ns: int) -> dict[str, float]:
        """Return the share of each phase of a range of time, over all threads."""
        spent_ns: Counter[str] = Counter()
        turns = self._program.turns
        for times in self._tracks:
            for turn in range(max(bisect_right(times, from_ns) - 1, 0), bisect_right(times, to_ns)):
                end_ns = min(times[turn + 1], to_ns) if turn + 1 < len(times) else to_ns
                spent_ns[turns[turn % len(turns)]] += max(end_ns - max(times[turn], from_ns), 0)
        whole_ns = sum(spent_ns[phase] for phase in self._program.phases)
        return {phase: spent_ns[phase] / whole_ns for phase in self._program.phases}


def known_programs() -> list[str]:
    """Return the names of the programs."""
    return [path.stem for path in sorted(KNOWN.glob("*.py")) if "\nPHASES = " in path.read_text()]


def read_program(name: str) -> Program:
    """Read what a program declares, without running it."""
    path = KNOWN / f"{name}.py"
    declared = {
        node.targets[0].id: node.value
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    calls = ast.literal_eval(ast.unparse(declared["CALLS"]).replace("set()", "[]"))
    turns = ast.literal_eval(declared["PHASES"])
    return Program(path, {caller: frozenset(callees) for caller, callees in calls.items()}, turns)


class Running:
    """A program that runs and keeps its diary."""

    def __init__(self, process: subprocess.Popen[str], program: Program, file: Path) -> None:
        self._process = process
        self._program = program
        self._file = file
        self.pid = process.pid

    def finish(self) -> Diary:
        """End the program and return what it has written down."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        return Diary(json.loads(self._file.read_text()), self._program)


@contextlib.contextmanager
def running(python: str, program: Program, folder: Path) -> Iterator[Running | None]:
    """Run a program until the block ends; None where the interpreter cannot run it."""
    file = folder / "diary"
    process = subprocess.Popen(
        [python, str(program.path), str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        is_ready = process.stdout.readline().strip() == "ready"
        yield Running(process, program, file) if is_ready else None
    finally:
        process.kill()
        process.communicate()
