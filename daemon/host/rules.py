"""Whether a process is to be recorded, by the rules and exclusions of the configuration. Pure, but for users' names."""

from __future__ import annotations

import pwd
import re
from collections.abc import Sequence

from profd.daemon.host.configuration import Configuration, Exclusion, Rule
from profd.daemon.host.subject import Subject


class Rules:
    """The rules and exclusions of a configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._rules = configuration.rule
        self._exclusions = configuration.exclude

    def match(self, subject: Subject) -> Rule | None:
        """Return the rule that a process meets, its age aside: of several the one with the least age; None for none."""
        if any(_is_excluded(subject, exclusion) for exclusion in self._exclusions):
            return None
        met = [rule for rule in self._rules if _meets(subject, rule)]
        return min(met, key=lambda rule: rule.min_age_s) if met else None


def _meets(subject: Subject, rule: Rule) -> bool:
    return (
        (subject.uses_torch or not rule.torch)
        and (subject.uses_gpu or not rule.gpu)
        and _is_command(subject, rule.command)
        and _is_of(subject, rule.users)
    )


def _is_excluded(subject: Subject, exclusion: Exclusion) -> bool:
    return _is_command(subject, exclusion.command) and _is_of(subject, exclusion.users)


def _is_command(subject: Subject, pattern: str) -> bool:
    return not pattern or re.search(pattern, " ".join(subject.command)) is not None


def _is_of(subject: Subject, users: Sequence[str]) -> bool:
    return not users or str(subject.uid) in users or user_name(subject.uid) in users


def user_name(uid: int) -> str:
    """Return the name of a user; the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
