"""What changed from one run to another, and limits on what may change.

The main threads of the training processes are compared: seconds a step if both runs show their
steps, otherwise shares of the time. Two runs of one script differ by more than sampling: each is
cut into blocks, and a difference counts if it is larger than the noise of the blocks explains, all
items taken together, and larger than ``least``. The blocks do not show what makes a whole run
slower. So a change of seconds a step counts if contention for the CPU cannot explain it, or if the
share of the step changed as well. Memory, GPUs and the operators of windows are compared, too.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from profd.daemon.analyze.confidence import t_quantile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.series import PRESSURE, total_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.compare.blocks import (
    Blocks,
    CpuContention,
    Item,
    Mean,
    slowing,
    take_blocks,
    take_cpu_contention,
)
from profd.daemon.compare.readings import (
    LEAST,
    Held,
    MemoryKey,
    Operators,
    Reading,
    busy_by_block,
    gpu_pairs,
    judged,
    memory_pairs,
    operator_pairs,
    take_held,
    take_operators,
)
from profd.daemon.errors import UsageError
from profd.daemon.store.reader import RunReader

VERSION = 1
ALIKE = 0.15
"""By how much all parts of a step may be longer in one of two runs of one script.

The most in forty runs, alone on the machine, was 15 %.
"""
_ERROR_RATE = 0.05
"""How often chance calls anything a change; a fifth of it is left to memory, GPUs and operators."""


BothBlocks = tuple[Blocks, Blocks]
"""Those of the base, and of the new run."""


class Change(msgspec.Struct, frozen=True):
    """An item in both runs, in the unit of the diff.

    ``low`` and ``high`` bound the difference, all items at once.

    ``relative`` is the difference as a part of a whole step (of all time) of the base.
    ``is_significant`` says that the bounds leave out zero, and that the difference is not smaller
    than ``least``. The bounds allow for CPU contention, unless the item's share of the step changed
    as well.
    """

    kind: str
    name: str
    module_path: str
    line: int
    base: float
    new: float
    difference: float
    low: float
    high: float
    relative: float
    is_significant: bool

    @property
    def item(self) -> Item:
        return self.kind, self.name, self.module_path, self.line


class Judge:
    """Separates changes from noise, for ``items`` at once."""

    def __init__(self, items: int, freedom: int, whole: float, least: float, slower: float) -> None:
        # Bonferroni: the error rate is that of any of all items, not of each of them.
        self._critical = t_quantile(1 - 4 * _ERROR_RATE / 5 / 2 / max(items, 1), freedom)
        # Of the likeliest item alone, if something else surely changed.
        self._critical_of_one = t_quantile(1 - _ERROR_RATE, freedom)
        self._whole, self._least, self._slower = whole, least, slower

    def differ(self, shares: Sequence[Mean], direction: float, *, alone: bool = False) -> bool:
        """Say whether shares of an item differ by more than their noise, in a direction.

        The item is ``alone``, or one of all.
        """
        more = shares[1].less(shares[0])
        critical = self._critical_of_one if alone else self._critical
        return more.value * math.copysign(1, direction) > critical * more.error

    def change(
        self, item: Item, base: Mean, new: Mean, *, is_more_than_contention: bool = False
    ) -> Change:
        more = new.less(base)
        slower = 0.0 if is_more_than_contention else self._slower * max(base.value, new.value)
        margin = self._critical * more.error + slower
        relative = more.value / self._whole if self._whole else 0.0
        is_significant = abs(more.value) > margin and abs(relative) >= self._least
        # No part can lose more than the whole of the base.
        bounds = max(more.value - margin, -self._whole), more.value + margin
        return Change(*item, base.value, new.value, more.value, *bounds, relative, is_significant)


class Side(msgspec.Struct, frozen=True):
    """One of the two runs: how long the part that is compared lasts, and seconds a step in it.

    ``cpu_pressure`` is the share of that time in which some task of the machine waited for a CPU,
    ``company`` what others took of the machine, ``blocks`` the number of parts that it was cut
    into.
    """

    run: str
    name: str
    compared_s: float
    step_s: float | None
    cpu_pressure: float | None
    company: CpuContention | None
    blocks: int


class Diff(msgspec.Struct, frozen=True):
    """A comparison; ``unit`` is ``s/step`` or ``share``. Changes are ordered by their size.

    ``step_time`` is None if the steps of a run are unknown. ``operators`` is empty if a run has no
    window, ``gpus`` if one has no GPU. ``likeliest`` is the function that a sure change likely lies
    in, if none of the functions and lines has surely changed by itself.
    """

    version: int
    base: Side
    new: Side
    unit: str
    least: float
    alike: float
    step_time: Change | None
    phases: tuple[Change, ...]
    functions: tuple[Change, ...]
    lines: tuple[Change, ...]
    leaves: tuple[Change, ...]
    operators: tuple[Reading, ...] = ()
    memory: tuple[Reading, ...] = ()
    gpus: tuple[Reading, ...] = ()
    likeliest: Change | None = None

    @property
    def readings(self) -> list[Reading]:
        """What changed beside time: GPUs first, then memory, then operators."""
        return [one for one in (*self.gpus, *self.memory, *self.operators) if one.is_significant]

    @property
    def significant(self) -> list[Change]:
        """What changed: the user's functions and lines, then leaves, then phases; largest first."""
        every = (*self.functions, *self.lines, *self.leaves, *self.phases)
        return [change for change in every if change.is_significant]

    @property
    def first(self) -> Change | None:
        """The change to name first.

        Among the large changes of the user's code it is the one that changed most by its own
        measure. A function changes with a line in it, and a line with what it calls: the narrowest
        of them says where to look.
        """
        found = [change for change in self.significant if change.kind in ("function", "line")]
        if not found and self.likeliest is not None:
            return self.likeliest
        found = found or self.significant
        largest = max((abs(change.difference) for change in found), default=0.0)
        narrow = [change for change in found if abs(change.difference) >= largest / 2]
        return max(
            narrow,
            key=lambda change: abs(change.difference) / max(change.base, change.new),
            default=None,
        )


class ComparedPart(msgspec.Struct, frozen=True):
    """What is compared of a run.

    ``gpus`` has how busy each GPU was by block, ``windows`` the operators of each window.
    """

    side: Side
    blocks: Blocks
    memory: dict[MemoryKey, Held]
    gpus: list[list[float]]
    windows: list[Operators]


def take_compared(reader: RunReader, selection: Selection = MAIN_THREADS) -> ComparedPart:
    """Read what is compared of a selection of a run."""
    blocks = take_blocks(reader, selection)
    part = selection.during(blocks.time)
    side = Side(
        reader.info.id,
        reader.info.name,
        compared_s=blocks.time.length_ns / SECOND_NS,
        step_s=blocks.step_s.value if blocks.step_s else None,
        cpu_pressure=total_of_series(reader, PRESSURE, None, part).mean,
        company=take_cpu_contention(reader, part),
        blocks=blocks.count,
    )
    memory, gpus = take_held(reader, part), busy_by_block(reader, part)
    return ComparedPart(side, blocks, memory, gpus, take_operators(reader, selection))


def take_diff(
    base: ComparedPart, new: ComparedPart, *, least: float = LEAST, alike: float = ALIKE
) -> Diff:
    """Compare two runs; it is no change if all parts are longer by up to ``alike``."""
    blocks, sides = (base.blocks, new.blocks), (base.side, new.side)
    by_step = all(side.step_s is not None for side in blocks)
    items = _compared(blocks)
    whole = blocks[0].step_s.value if by_step and blocks[0].step_s else 1.0
    slower = alike + slowing(sides[0].company, sides[1].company) if by_step else 0.0
    judge = Judge(len(items) + 1, min(side.count for side in blocks) - 1, whole, least, slower)
    changes = [_change(judge, item, blocks, by_step=by_step) for item in items]
    changes = _without_moves(changes, {**blocks[0].functions, **blocks[1].functions})
    changes.sort(key=lambda change: (not change.is_significant, -abs(change.difference)))
    step_time = _step_time(judge, blocks, changes)
    pairs = [*memory_pairs(base.memory, new.memory), *gpu_pairs(base.gpus, new.gpus)]
    readings = judged([*pairs, *operator_pairs(base.windows, new.windows)], _ERROR_RATE / 5)
    return Diff(
        VERSION,
        *sides,
        "s/step" if by_step else "share",
        least,
        alike,
        step_time,
        phases=_of_kind(changes, "phase"),
        functions=_of_kind(changes, "function"),
        lines=_of_kind(changes, "line"),
        leaves=_of_kind(changes, "leaf"),
        operators=_of_kind(readings, "operator"),
        memory=_of_kind(readings, "memory"),
        gpus=_of_kind(readings, "gpu"),
        likeliest=_likeliest(judge, changes, step_time, blocks),
    )


Compared = TypeVar("Compared", Change, Reading)


def _of_kind(compared: Iterable[Compared], kind: str) -> tuple[Compared, ...]:
    return tuple(one for one in compared if one.kind == kind)


def _compared(blocks: BothBlocks) -> list[Item]:
    """Return the items with at least 0.5 % of the time in either run."""
    return sorted(
        item
        for item in blocks[0].shares.keys() | blocks[1].shares.keys()
        if max(sum(side.shares.get(item, ())) / side.count for side in blocks) >= 0.005
    )


def _change(judge: Judge, item: Item, blocks: BothBlocks, *, by_step: bool) -> Change:
    """Judge an item by its seconds a step if they are known, and by its share of the step."""
    base, new = (side.mean(item, by_step=by_step) for side in blocks)
    shares = [side.mean(item, by_step=False) for side in blocks]
    differs = judge.differ(shares, new.value - base.value)
    return judge.change(item, base, new, is_more_than_contention=differs)


def _step_time(judge: Judge, blocks: BothBlocks, changes: Sequence[Change]) -> Change | None:
    """Judge the time of a step.

    A part that surely changed explains the step's change if half of it lies in that part.
    """
    base, new = (side.step_s for side in blocks)
    if base is None or new is None:
        return None
    difference = new.value - base.value
    is_explained = any(
        change.is_significant and _explains(change.difference, difference) for change in changes
    )
    return judge.change(
        ("step", "step time", "", 0), base, new, is_more_than_contention=is_explained
    )


def _explains(part: float, whole: float) -> bool:
    return part * whole > 0 and abs(part) >= abs(whole) / 2


def _likeliest(
    judge: Judge, changes: Sequence[Change], step_time: Change | None, blocks: BothBlocks
) -> Change | None:
    """Return the function that a sure change likely lies in: the largest that went the same way.

    It is sure then that anything changed, for all items together; so each function may be judged by
    itself.
    """
    sure = [
        change for change in (step_time, *changes) if change is not None and change.is_significant
    ]
    if not sure or any(change.kind in ("function", "line") for change in sure):
        return None
    way = sure[0].difference
    alike = [one for one in changes if one.kind == "function" and one.difference * way > 0]
    shares = {one.item: [side.mean(one.item, by_step=False) for side in blocks] for one in alike}
    found = [one for one in alike if judge.differ(shares[one.item], way, alone=True)]
    return max(found, key=lambda change: abs(change.difference), default=None)


def _without_moves(
    changes: Sequence[Change], functions: Mapping[Item, tuple[str, str]]
) -> list[Change]:
    """Return changes, with those of lines significant only if their function changed, too.

    The function must have changed by at least half as much. An instruction between two lines of a
    short loop counts for one or the other, which differs from run to run with the place of code in
    memory and caches. But a slower line makes its function slower.
    """
    moved: defaultdict[tuple[str, str], float] = defaultdict(float)
    for change in changes:
        if change.kind == "function":
            moved[change.module_path, change.name.rpartition(" → ")[2]] += change.difference
    return [
        msgspec.structs.replace(change, is_significant=False)
        if change.kind == "line"
        and not _explains(moved[functions.get(change.item, ("", ""))], change.difference)
        else change
        for change in changes
    ]


_FORM = re.compile(
    r"(?P<metric>step_time|(?P<kind>phase|function|operator|memory|gpu):(?P<name>.+?))"
    r"\s*(?P<relation>[<>])\s*(?P<percent>[+-]?\d+(?:\.\d+)?)\s*%"
)
_READINGS = {"operator": "operators", "memory": "memory", "gpu": "gpus"}


class ChangeLimit(msgspec.Struct, frozen=True):
    """A change that is too large: above ``bound`` or, with ``<``, below it.

    ``bound`` is a part of the base's own value.
    """

    text: str
    kind: str
    name: str
    relation: str
    bound: float

    def is_broken_by(self, diff: Diff) -> bool:
        """Say whether a significant change goes beyond the bound.

        Raises UsageError if the diff cannot tell.
        """
        change: Change | Reading | None
        if self.kind == "step":
            if diff.step_time is None:
                raise UsageError(
                    f"{self.text} cannot be checked: one of the runs does not tell its steps"
                )
            change = diff.step_time
        elif self.kind in _READINGS:
            # Either ``gpu:GPU 0, idle share``, or what changed of ``gpu:GPU 0``.
            readings: tuple[Reading, ...] = getattr(diff, _READINGS[self.kind])
            named = [
                one for one in readings if self.name in (one.name, f"{one.name}, {one.measure}")
            ]
            change = max(named, key=lambda one: one.is_significant, default=None)
        else:
            changes = diff.phases if self.kind == "phase" else (*diff.functions, *diff.leaves)
            change = next(
                (one for one in changes if self.name in (one.name, one.name.split(" → ")[-1])), None
            )
        if change is None or not change.is_significant:
            return False
        relative = change.difference / change.base if change.base else float("inf")
        return relative > self.bound if self.relation == ">" else relative < self.bound


def parse_limit(text: str) -> ChangeLimit:
    """Return the limit that a text states; raises UsageError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        remedy = "write step_time>+5%, 'phase:data wait>+10%' or 'function:NAME<-20%'"
        raise UsageError(f"{text} states no limit", remedy)
    kind, name = found["kind"] or "step", found["name"] or "step time"
    return ChangeLimit(text.strip(), kind, name, found["relation"], float(found["percent"]) / 100)
