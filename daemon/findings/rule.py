"""A rule looks for one cause that slows trainings, and declares which findings hide its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import Finding

Rule = Callable[[FindingContext], Finding | None]
"""Returns the finding if the cause is surely there, otherwise None."""
Hides = Callable[[Finding, Finding], bool]
"""Says of a rule's own finding, the first, whether another one explains it or says more of it."""

_HIDES: dict[Rule, Hides] = {}


def hidden_if(hides: Hides) -> Callable[[Rule], Rule]:
    """Declare when the finding of a rule is left out for another one of the same look."""

    def declare(rule: Rule) -> Rule:
        _HIDES[rule] = hides
        return rule

    return declare


def without_hidden(found: Mapping[Rule, Finding]) -> list[Finding]:
    def is_hidden(rule: Rule, own: Finding) -> bool:
        others = (other for other in found.values() if other is not own)
        return rule in _HIDES and any(_HIDES[rule](own, other) for other in others)

    return [own for rule, own in found.items() if not is_hidden(rule, own)]
