"""Limits on what may change from one run to another: ``step_time>+5%``, as a check in CI states them."""

from __future__ import annotations

import re

import msgspec

from profd.daemon.analyze.compare.change import Change
from profd.daemon.analyze.compare.diff import Diff
from profd.daemon.analyze.compare.readings import Reading
from profd.daemon.errors import UsageError

_FORM = re.compile(
    r"(?P<metric>step_time|(?P<kind>phase|function|operator|memory|gpu):(?P<name>.+?))\s*(?P<relation>[<>])\s*(?P<percent>[+-]?\d+(?:\.\d+)?)\s*%"
)
_READINGS = {"operator": "operators", "memory": "memory", "gpu": "gpus"}


class Limit(msgspec.Struct, frozen=True):
    """A change that is too large: above ``bound`` (a part of the base's own value) or, with ``<``, below it."""

    text: str
    kind: str
    name: str
    relation: str
    bound: float

    def is_broken_by(self, diff: Diff) -> bool:
        """Say whether a significant change goes beyond the bound; raises UsageError where the diff cannot tell."""
        change = self._find(diff)
        if change is None or not change.is_significant:
            return False
        relative = change.difference / change.base if change.base else float("inf")
        return relative > self.bound if self.relation == ">" else relative < self.bound

    def _find(self, diff: Diff) -> Change | Reading | None:
        if self.kind == "step":
            if diff.step_time is None:
                raise UsageError(f"{self.text} cannot be checked: one of the runs does not tell its steps")
            return diff.step_time
        if self.kind in _READINGS:
            return self._find_reading(diff)
        changes = diff.phases if self.kind == "phase" else (*diff.functions, *diff.leaves)
        return next((change for change in changes if self.name in (change.name, change.name.split(" → ")[-1])), None)

    def _find_reading(self, diff: Diff) -> Reading | None:
        """Return the reading that is named: ``gpu:GPU 0, idle share``, or what changed of ``gpu:GPU 0``."""
        readings: tuple[Reading, ...] = getattr(diff, _READINGS[self.kind])
        named = [one for one in readings if self.name in (one.name, f"{one.name}, {one.measure}")]
        return max(named, key=lambda one: one.is_significant, default=None)


def parse_limit(text: str) -> Limit:
    """Return the limit that a text states; raises UsageError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text} states no limit", "write step_time>+5%, 'phase:data wait>+10%' or 'function:NAME<-20%'"
        )
    kind, name = found["kind"] or "step", found["name"] or "step time"
    return Limit(text.strip(), kind, name, found["relation"], float(found["percent"]) / 100)
