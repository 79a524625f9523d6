"""An item in both of two runs, and whether it changed or chance made it differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from profd.daemon.analyze.confidence import t_quantile
from profd.daemon.compare.blocks import Item, Mean

_ERROR_RATE = 0.04
"""How often chance calls any item a change; a hundredth is left to memory, GPUs and operators."""
_ERROR_RATE_OF_LIKELIEST = 0.05
"""How often a function that did not change differs as much by chance, where something else surely changed."""


class Change(msgspec.Struct, frozen=True):
    """An item in both runs, in the unit of the diff; ``low`` and ``high`` bound the difference, all items at once.

    ``relative`` is the difference as a part of a whole step (of all time) of the base. ``is_significant``: the bounds
    leave out zero, and it is not smaller than ``least``. The bounds hold what CPU contention may do, but for an item
    whose share of the step changed as well.
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
        self._whole = whole
        self._least = least
        self._slower = slower

    def differ(self, shares: Sequence[Mean], direction: float, *, alone: bool = False) -> bool:
        """Say whether shares of an item, ``alone`` or one of all, differ by more than their noise, in a direction."""
        base, new = shares
        critical = self._critical_of_one if alone else self._critical
        difference = (new.value - base.value) * math.copysign(1, direction)
        return difference > critical * math.hypot(base.error, new.error)

    def change(self, item: Item, base: Mean, new: Mean, *, is_more_than_contention: bool = False) -> Change:
        difference = new.value - base.value
        margin = self._critical * math.hypot(base.error, new.error)
        if not is_more_than_contention:
            margin += self._slower * max(base.value, new.value)
        relative = difference / self._whole if self._whole else 0.0
        is_significant = abs(difference) > margin and abs(relative) >= self._least
        return Change(
            *item, base.value, new.value, difference, difference - margin, difference + margin, relative, is_significant
        )
