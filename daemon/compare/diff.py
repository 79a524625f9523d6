"""What changed from one run to another, and limits on what may change.

Compared are the main threads of the training processes: seconds a step where both runs show their
steps, else shares of the time. Two runs of one script differ by more than sampling: each is cut
into blocks, and a difference counts where it is larger than the noise of the blocks explains, all
items taken together, and larger than ``least``. What makes a whole run slower is not in its blocks:
seconds a step count where they go beyond what contention for the CPU may do, or where the share of
the step changed as well. Beside time there are memory, GPUs and the operators of windows.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from profd.daemon.analyze.confidence import t_quantile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.series import PRESSURE, mean_of_series
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
from profd.daemon.compare.readings import Reading, gpu_pairs, judged, memory_pairs, operator_pairs
from profd.daemon.errors import UsageError
from profd.daemon.store.reader import RunReader

VERSION = 1
LEAST = 0.02
"""A change that is smaller than this part of a step is none.

Two runs of one script are seldom more alike.
"""
ALIKE = 0.15
"""The part by which one of two runs of one script may have all parts of a step longer.

The most of forty runs, alone on the machine, was 15 %.
"""
_COMPARED_SHARE = 0.005
_ERROR_RATE = 0.04
"""How often chance calls any item a change; a hundredth is left to memory, GPUs and operators."""
_ERROR_RATE_OF_LIKELIEST = 0.05
"""How often a function that did not change differs as much by chance.

That is if something else surely changed.
"""
_ERROR_RATE_OF_READINGS = 0.01
"""How often chance calls anything of memory, GPUs and operators a change.

Most of the 5 % of comparisons is left to times.
"""


class Change(msgspec.Struct, frozen=True):
    """An item in both runs, in the unit of the diff.

    ``low`` and ``high`` bound the difference, all items at once.

    ``relative`` is the difference as a part of a whole step (of all time) of the base.
    ``is_significant``: the bounds leave out zero, and it is not smaller than ``least``. The bounds
    hold what CPU contention may do, but for an item whose share of the step changed as well.
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
        self._critical = t_quantile(1 - _ERROR_RATE / 2 / max(items, 1), freedom)
        self._critical_of_one = t_quantile(1 - _ERROR_RATE_OF_LIKELIEST, freedom)
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
        bounds = more.value - margin, more.value + margin
        return Change(*item, base.value, new.value, more.value, *bounds, relative, is_significant)


class Side(msgspec.Struct, frozen=True):
    """One of the two runs: how long the part that is compared lasts, and seconds a step in it.

    ``cpu_pressure`` is the share of that time for which some task of the machine stood still for
    want of a CPU, ``company`` what others took of the machine; ``blocks`` are the parts that it was
    cut into.
    """

    run: str
    name: str
    compared_s: float
    step_s: float | None
    cpu_pressure: float | None = None
    company: CpuContention | None = None
    blocks: int = 0


class Diff(msgspec.Struct, frozen=True):
    """A comparison; ``unit`` is ``s/step`` or ``share``. Changes stand in the order of their size.

    ``step_time`` is None where the steps of a run are unknown. ``operators`` is empty where a run
    has no window, ``gpus`` where one has no GPU. ``likeliest`` is the function that a sure change
    likely lies in, where none of the functions and lines has surely changed by itself.
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
        """What changed: functions and lines of the user's code, then leaves, then phases.

        Of each the largest first.
        """
        every = (*self.functions, *self.lines, *self.leaves, *self.phases)
        return [change for change in every if change.is_significant]

    @property
    def first(self) -> Change | None:
        """The change to name first.

        Of the large changes of the user's code it is the one that changed most by its own measure.

        A function changes with a line in it, and a line with what it calls: the narrowest of them
        says where to look.
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


def take_diff(
    base: RunReader,
    new: RunReader,
    selections: tuple[Selection, Selection] = (MAIN_THREADS, MAIN_THREADS),
    *,
    least: float = LEAST,
    alike: float = ALIKE,
) -> Diff:
    """Compare two runs, each over its selection.

    What makes all parts longer by up to ``alike`` is no change.
    """
    blocks = take_blocks(base, selections[0]), take_blocks(new, selections[1])
    by_step = all(side.step_s is not None for side in blocks)
    # Those whose share in either run is worth comparing.
    every = blocks[0].shares.keys() | blocks[1].shares.keys()
    items = sorted(
        one
        for one in every
        if any(side.mean(one, by_step=False).value >= _COMPARED_SHARE for side in blocks)
    )
    whole = blocks[0].step_s.value if by_step and blocks[0].step_s else 1.0
    first, second = (
        part.between(side.from_ns, side.to_ns)
        for part, side in zip(selections, blocks, strict=True)
    )
    sides = _side(base, blocks[0], first), _side(new, blocks[1], second)
    slower = alike + slowing(sides[0].company, sides[1].company) if by_step else 0.0
    judge = Judge(len(items) + 1, min(side.count for side in blocks) - 1, whole, least, slower)
    changes = []
    for (
        item
    ) in items:  # by seconds a step where they are known, and by its share of the step beside them
        means = [side.mean(item, by_step=by_step) for side in blocks]
        shares = [side.mean(item, by_step=False) for side in blocks]
        differs = judge.differ(shares, means[1].value - means[0].value)
        changes.append(judge.change(item, *means, is_more_than_contention=differs))
    changes = _without_moves(changes, {**blocks[0].functions, **blocks[1].functions})
    changes.sort(key=lambda change: (not change.is_significant, -abs(change.difference)))
    readers, parts = (base, new), (first, second)
    pairs = [*memory_pairs(readers, parts), *gpu_pairs(readers, parts)]
    readings = judged([*pairs, *operator_pairs(readers, selections)], _ERROR_RATE_OF_READINGS)
    kinds, kinds_beside = ("phase", "function", "line", "leaf"), ("operator", "memory", "gpu")
    phases, functions, lines, leaves = (
        tuple(one for one in changes if one.kind == kind) for kind in kinds
    )
    operators, memory, gpus = (
        tuple(one for one in readings if one.kind == kind) for kind in kinds_beside
    )
    unit, step_time = "s/step" if by_step else "share", _step_time(judge, blocks, changes)
    parts_of_step, beside = (phases, functions, lines, leaves), (operators, memory, gpus)
    likeliest = _likeliest(judge, changes, step_time, blocks)
    return Diff(VERSION, *sides, unit, least, alike, step_time, *parts_of_step, *beside, likeliest)


def _side(reader: RunReader, blocks: Blocks, part: Selection) -> Side:
    compared_s = (blocks.to_ns - blocks.from_ns) / SECOND_NS
    step_s = None if blocks.step_s is None else blocks.step_s.value
    pressure, company = (
        mean_of_series(reader, PRESSURE, None, part),
        take_cpu_contention(reader, part),
    )
    return Side(
        reader.info.id, reader.info.name, compared_s, step_s, pressure, company, blocks.count
    )


def _step_time(
    judge: Judge, blocks: tuple[Blocks, Blocks], changes: Sequence[Change]
) -> Change | None:
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
    judge: Judge, changes: Sequence[Change], step_time: Change | None, blocks: tuple[Blocks, Blocks]
) -> Change | None:
    """Return the function that a sure change likely lies in.

    It is the largest of those whose share went the same way.

    That anything changed is sure then, for all items together; so each function may be judged by
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

    The function must have changed by half as much at least.

    To which of two lines of a short loop an instruction between them is counted differs from run to
    run, as code and its caches come to lie elsewhere. What makes a line slower makes its function
    slower.
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


class Limit(msgspec.Struct, frozen=True):
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

        Raises UsageError where the diff does not have it.
        """
        change: Change | Reading | None
        if self.kind == "step":
            if diff.step_time is None:
                raise UsageError(
                    f"{self.text} cannot be checked: one of the runs does not tell its steps"
                )
            change = diff.step_time
        elif (
            self.kind in _READINGS
        ):  # as ``gpu:GPU 0, idle share``, or what changed of ``gpu:GPU 0``
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


def parse_limit(text: str) -> Limit:
    """Return the limit that a text states; raises UsageError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        remedy = "write step_time>+5%, 'phase:data wait>+10%' or 'function:NAME<-20%'"
        raise UsageError(f"{text} states no limit", remedy)
    kind, name = found["kind"] or "step", found["name"] or "step time"
    return Limit(text.strip(), kind, name, found["relation"], float(found["percent"]) / 100)
