"""The workers of the DataLoaders: how many there are at once, how busy they are, and where."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.findings.case import Case, Share
from profd.daemon.analyze.findings.finding import Line
from profd.daemon.analyze.phases import STARTUP, WAITING
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.rows import FrameRow

SATURATED = 0.8
"""A worker that is busy for more than this has no reserve: its next order is there before it has met the last one."""

_NOT_LOADING = frozenset({WAITING, STARTUP})
_LOOP = "_worker_loop"


class Loaders(msgspec.Struct, frozen=True):
    """Workers together: ``at_once`` of them lived at the same time, ``started`` were started in all.

    ``busy`` is the share of their time with an order, ``cores`` the CPU time a second of one of them, None where it was
    not read. ``line`` is the line of the dataset that they mostly stood at; ``selection`` selects what they did.
    """

    at_once: int
    started: int
    busy: Share
    samples: int
    cores: float | None
    line: Line | None
    selection: Selection


def living_at_once(case: Case) -> int:
    """Return how many workers there are at a time: those that replace others take their numbers."""
    return len({(row.parent, row.ordinal) for row in case.workers})


def take_loaders(case: Case) -> Loaders | None:
    """Return the workers of the training; None where there are none, or nothing was seen of them."""
    if not case.workers:
        return None
    selection, profile = case.profile_of(case.workers)
    if not profile.samples:
        return None
    cores = [used for row in case.workers if (used := case.mean("cpu_cores", row.id)) is not None]
    return Loaders(
        at_once=living_at_once(case),
        started=len(case.workers),
        busy=case.share_of(profile, lambda stack: case.phases.of_stack(stack) not in _NOT_LOADING),
        samples=profile.total_samples,
        cores=sum(cores) / len(cores) if cores else None,
        line=case.heaviest_line(profile, frame_of=lambda stack: _own_frame(case, stack)),
        selection=selection,
    )


def _own_frame(case: Case, stack: int) -> FrameRow | None:
    """Return the innermost frame of the user's below the loop of a worker; None where there is none.

    What lies above the loop is the parent's, copied with the rest when the worker was forked.
    """
    found = None
    while stack:
        row = case.reader.stacks[stack]
        frame = case.reader.frames[row.frame]
        if frame.function == _LOOP:
            return found
        if found is None and not frame.is_library:
            found = frame
        stack = row.parent
    return None
