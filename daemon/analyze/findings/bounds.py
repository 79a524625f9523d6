"""By how many times steps get faster at most, with what else would limit them, and how crowded the cores are.

A share of time is one in the company that the training had. While its main thread waits for cores that others use, what
is left after a fix would be as slow as before, or much faster where they leave: shares do not tell.
"""

from __future__ import annotations

import statistics

from profd.daemon.analyze.findings.case import Case, Share
from profd.daemon.analyze.findings.cores import core_wait, main_thread_cores
from profd.daemon.analyze.phases import WITHOUT_WORK

TOLD_UNTIL = 1.5
"""From this crowding on a bound would be one on the company, not on the fix."""
# What takes time on the main thread often slows the rest as well: caches are emptied, pages copied, cores fall asleep.
# Where a fix removed half of a step and more, the rest took 0.81 to 1.09 of the time that it had taken before.
_INDIRECT = 0.25


def bound(case: Case, share: Share, *limits: float | None, indirect: float = _INDIRECT) -> float | None:
    """Return the bound on the gain of who takes a share away, where limits allow it.

    What is left may be as much shorter as cores were lacking for it, and a little more by what the share had cost it, a
    part ``indirect`` of the share at most: a limit that holds even so is given with ``limits``. None where that is so
    much that nothing tells.
    """
    crowded = crowding(case)
    if crowded > TOLD_UNTIL:
        return None
    rest = 1 - indirect * min(share.high, 1.0)
    return min([crowded * share.gain / rest, *(limit for limit in limits if limit is not None)])


def crowding(case: Case) -> float:
    """Return by how many times the main threads' own work takes longer because they wait for a core; 1 where unknown.

    Who has work and no CPU time may wait for a core, a disk, or a lock; for a core it waits as long as the kernel says,
    or where that is not counted by thread, no longer than it says that anybody did.
    """
    known = [cores for row in case.trainers if (cores := main_thread_cores(case, row.id)) is not None]
    waited = core_wait(case)
    if not known or waited is None:
        return 1.0
    work = 1 - case.share(*WITHOUT_WORK).value
    on_cpu = min(statistics.fmean(known), work)
    held_up = min(work - on_cpu, waited)
    return work / (work - held_up) if held_up < work else float("inf")
