"""Reads the diary that a recorded program leaves behind, each kind of program in its own words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from support.recordinglines import Diary
from truth.phases import read_passes
from truth.programs import read_program


class Said(NamedTuple):
    """A line of a program's output, and when it came."""

    at_ns: int
    text: str


def of_known(name: str, file: Path) -> Diary:
    """Return the diary of a program of ``benchmarks/truth/known``."""
    return Diary(
        turns=read_program(name).turns, tracks=tuple(map(tuple, json.loads(file.read_text())))
    )


def of_turns(file: Path) -> Diary:
    """Return the diary of ``known_phases.py``: a line for each turn."""
    lines = [line.split() for line in file.read_text().splitlines()[:-1]]
    turns = tuple(dict.fromkeys(line[0] for line in lines))
    return Diary(turns=turns, tracks=(tuple(int(line[1]) for line in lines),))


def of_steps(file: Path) -> Diary:
    """Return the diary of a program of ``steploops``: a line for each step and batch; the last may be half written."""
    lines = [line.split() for line in file.read_text().splitlines()[:-1]]
    made_at: dict[int, int] = {}
    for at_ns, made, *_ in lines:
        made_at.setdefault(int(made), int(at_ns))
    made_at.pop(0, None)  # batches of the first step
    return Diary(steps=tuple((at_ns, made) for made, at_ns in made_at.items()))


def of_corpus(file: Path, rule: str) -> Diary:
    """Return the diary of a program of ``benchmarks/findings/corpus``: a line for each step, the last may be half written."""
    rows = [tuple(map(int, line.split())) for line in file.read_text().splitlines()[:-1]]
    steps = tuple((at_ns, made) for at_ns, made, _ in rows)
    spent = tuple((at_ns, planted_ns) for at_ns, _, planted_ns in rows if planted_ns)
    return Diary(steps=steps, planted=rule, spent=spent)


def of_phases(file: Path) -> Diary:
    """Return the diary that ``phasetruth.py`` keeps: a line for each change of the phase."""
    lines = [line.split(" ", 1) for line in file.read_text().splitlines()]
    passes = read_passes(file)
    return Diary(
        phases=tuple((int(at_ns), phase) for at_ns, phase in lines),
        steps=tuple((at_ns, made) for made, at_ns in enumerate(passes, 1)),
    )


def of_log(said: Sequence[Said], pattern: str, steps_an_epoch: int = 1) -> Diary:
    """Return the steps that a program logs when they are over.

    The pattern's groups are the number of the step; or the epoch, from 1 on, and the batch of the epoch.
    """
    found = ((one.at_ns, re.search(pattern, one.text)) for one in said)
    numbers = [(at_ns, tuple(map(int, match.groups()))) for at_ns, match in found if match]
    steps = [
        (at_ns, (of[0] - 1) * steps_an_epoch + of[1] if len(of) > 1 else of[0])
        for at_ns, of in numbers
    ]
    return Diary(steps=tuple(steps))
