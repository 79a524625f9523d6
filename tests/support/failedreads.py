"""A reader some of whose reads fail, as those of stacks that are deep or restless do."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from profd.daemon.stacks.pyspy import StackChange
from profd.daemon.store.records import Stack


class Reader:
    """Reads a program that alternates between stacks.

    A read fails where its stack ends meanwhile, or by its pace.

    ``fails`` is the share of the reads that fail in stacks that others are entered from, and left
    for, all the time.
    """

    def __init__(
        self,
        stays_us: dict[Stack, float],
        read_us: dict[Stack, float],
        seed: int,
        fails: dict[Stack, float] | None = None,
    ) -> None:
        self._fails = fails or {}
        self._chance = random.Random(seed)
        self.samples = 0
        self.failed_us: list[int] = []
        self.spent_us = dict.fromkeys(stays_us, 0.0)
        self.changes: list[StackChange] = []
        self._read_us = read_us
        stays = (
            (one, self._chance.uniform(0.9, 1.1) * stay)
            for one, stay in itertools.cycle(stays_us.items())
        )
        at_us, read_at_us = 0.0, self._chance.expovariate(1e-4)
        for one, stay_us in stays:
            self.spent_us[one] += stay_us
            while read_at_us < at_us + stay_us:
                self._read(one, read_at_us, at_us + stay_us)
                read_at_us += self._chance.expovariate(1e-4)
            at_us += stay_us
            if at_us > 60e6:
                break
        self.changes.append(StackChange(round(at_us), ()))

    def _read(self, one: Stack, at_us: float, until_us: float) -> None:
        if at_us + self._read_us[one] > until_us or self._is_too_restless(one):
            self.failed_us.append(round(at_us))
            return
        self.samples += 1
        if not self.changes or self.changes[-1].frames != one:
            self.changes.append(StackChange(round(at_us), one))

    def _is_too_restless(self, one: Stack) -> bool:
        return one in self._fails and self._chance.random() < self._fails[one]

    def error(self, changes: Sequence[StackChange], one: Stack) -> float:
        """Return by how many points the share of a stack is off."""
        share = sum(
            after.at_us - now.at_us
            for now, after in itertools.pairwise(changes)
            if now.frames == one
        ) / (changes[-1].at_us - changes[0].at_us)
        return 100 * (share - self.spent_us[one] / sum(self.spent_us.values()))
