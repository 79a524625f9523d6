"""Stacks as ``PhaseIndex`` reads them of a run, made of frames written as ``function | module path
| source``.
"""

from __future__ import annotations

import dataclasses
from typing import cast

import pytest

from profd.daemon.analyze.phases import PhaseIndex, Rule
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, StackRow
from support.folders import DATA

TRAIN = "train.py"
_OWN = {
    "train.py", "a.py", "b.py", "x.py",
    "compiled.py", "convolutional.py", "huggingface.py", "instrumented.py", "language.py", "lightning_fit.py",
}  # fmt: skip


@dataclasses.dataclass
class Tables:
    """What ``PhaseIndex`` reads of a reader."""

    frames: dict[int, FrameRow] = dataclasses.field(default_factory=dict)
    stacks: dict[int, StackRow] = dataclasses.field(default_factory=dict)

    def add(self, *frames: str) -> int:
        """Add a stack, root first, and return its id."""
        stack = 0
        for text in frames:
            function, module_path, source = (*map(str.strip, text.split("|")), "", "")[:3]
            number = len(self.frames) + 1
            is_library = module_path not in _OWN
            self.frames[number] = FrameRow(
                number, function, module_path, module_path, 7, is_library, source or None
            )
            self.stacks[number] = StackRow(number, stack, number)
            stack = number
        return stack

    def phases(self, rules: tuple[Rule, ...] | None = None) -> PhaseIndex:
        """Return the phases of these stacks, by the built-in rules where none are given."""
        with pytest.MonkeyPatch.context() as patch:
            if rules is not None:
                patch.setattr("profd.daemon.analyze.phases.rules_in_force", lambda: rules)
            return PhaseIndex(cast(RunReader, self))

    def frames_of(self, stack: int) -> tuple[FrameRow, ...]:
        """Return the frames of a stack, root first."""
        found: list[FrameRow] = []
        while stack:
            found.append(self.frames[self.stacks[stack].frame])
            stack = self.stacks[stack].parent
        return tuple(reversed(found))


def phase_of(*frames: str, rules: tuple[Rule, ...] | None = None) -> str:
    """Return the phase of a stack, by the built-in rules where none are given."""
    tables = Tables()
    stack = tables.add(*frames)
    return tables.phases(rules).of_stack(stack)


def stacks_in(name: str) -> list[tuple[str, list[str]]]:
    """Return (phase, frames) of each stack in a file among the unit tests."""
    found: list[tuple[str, list[str]]] = []
    for line in DATA.joinpath(name).read_text().splitlines():
        if line.startswith(" "):
            found[-1][1].append(line.strip())
        elif not line.startswith("#"):
            found.append((line, []))
    return found
