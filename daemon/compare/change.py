"""An item in both of two runs, and whether it changed or chance made it differ."""

from __future__ import annotations

import math

import msgspec

from profd.daemon.analyze.confidence import t_quantile
from profd.daemon.compare.blocks import Item, Mean

_ERROR_RATE = 0.04
"""How often chance calls any item a change; a hundredth is left to memory, GPUs and operators."""
_ERROR_RATE_OF_LIKELIEST = 0.05
"""How often a function leans as much by chance, of those that did not change where something else surely did."""


class Change(msgspec.Struct, frozen=True):
    """An item in both runs, in the unit of the diff; ``low`` and ``high`` bound the difference, all items at once.

    ``relative`` is the difference as a part of a whole step (of all time) of the base. ``is_significant``: the bounds
    leave out zero, and it is not smaller than ``least``. The bounds hold what company may do, but for an item whose
    share of the step changed as well.
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


class Judge:
    """Tells changes from noise, for so many items at once."""

    def __init__(self, items: int, freedom: int, whole: float, least: float, slower: float) -> None:
        # Bonferroni: so often chance calls any of all items changed, not each of them.
        self._critical = t_quantile(1 - _ERROR_RATE / 2 / max(items, 1), freedom)
        self._critical_of_one = t_quantile(1 - _ERROR_RATE_OF_LIKELIEST, freedom)
        self._whole = whole
        self._least = least
        self._slower = slower

    def differ(self, shares: tuple[Mean, ...], direction: float) -> bool:
        """Say whether shares differ by more than their unrest, in a direction."""
        base, new = shares
        difference = new.value - base.value
        return difference * direction > 0 and abs(difference) > self._margin(base, new)

    def lean(self, shares: tuple[Mean, ...], direction: float) -> bool:
        """Say whether shares of one item differ by more than their unrest, in a direction, as though it were alone."""
        base, new = shares
        error = math.hypot(base.error, new.error)
        return (new.value - base.value) * math.copysign(1, direction) > self._critical_of_one * error

    def change(self, item: Item, base: Mean, new: Mean, *, is_more_than_company: bool = False) -> Change:
        """Judge a difference."""
        difference = new.value - base.value
        margin = self._margin(base, new)
        if not is_more_than_company:
            margin += self._slower * max(base.value, new.value)
        relative = difference / self._whole if self._whole else 0.0
        is_significant = abs(difference) > margin and abs(relative) >= self._least
        return Change(
            *item, base.value, new.value, difference, difference - margin, difference + margin, relative, is_significant
        )

    def _margin(self, base: Mean, new: Mean) -> float:
        return self._critical * math.hypot(base.error, new.error)
