"""Find the cause of a hang from one look: its group of causes, and the sentence for it.

This module is pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import NamedTuple

from msgspec.structs import replace

from profd.daemon.frameworks.frames import Meaning, any_means, means
from profd.daemon.hangs.look import Look, StackState, name_of_member
from profd.daemon.naming import exit_words, signal_name
from profd.daemon.stacks.source import is_library, own_frames
from profd.daemon.store.records import Identity, RankBehind
from profd.daemon.tree import roles

# The groups of a thread that waits in a library: certain ones come before likely ones.
_SURE: tuple[Meaning, ...] = ("queue", "child process")
_LIKELY: tuple[Meaning, ...] = ("lock", "gpu")
PAUSED = ("stopped", "frozen")
_BY_WAIT = {kind: kind for kind in ("lock", "sleep", "polling", "gpu")} | {
    **dict.fromkeys(("read", "terminal", "events"), "blocked read"),
    **dict.fromkeys(("write", "flush"), "blocked write"),
    "child": "child process",
    "running": "spin",
    "gil": "lock",
}


class Death(NamedTuple):
    """A process of the run that ended.

    Code and signal are None if its parent took its status before profd could.
    """

    at_ns: int
    process: str
    code: int | None
    signal: int | None
    rank: int | None = None
    """The rank of a process that trained; None for any other."""
    pid: int | None = None

    def is_odd(self) -> bool:
        """Return whether a signal or an error ended it."""
        return self.signal is not None or bool(self.code)

    def in_words(self) -> str:
        return f"{self.process} {exit_words(self.code, signal_name(self.signal))}"


class Cause(NamedTuple):
    """The group of causes, the sentence, and the ranks that the others wait for."""

    group: str
    text: str
    behind: tuple[RankBehind, ...] = ()


def is_waiting_for_work(look: Look) -> bool:
    """Return whether all processes that train wait for requests, as servers do, or for a user.

    A pool's thread without work waits as the server does that gave it the training.
    """
    serving = _serving(look)
    return all(
        waits_for_user(row)
        or waits_for_requests(row)
        or (_is_idle_in_pool(row) and row.member.identity in serving)
        for row in look.mains()
    )


def is_serving(look: Look, left: Collection[Identity | None]) -> bool:
    """Return whether all processes that trained have ``left`` the loop, and wait for requests."""
    return {row.member.identity for row in look.mains()} <= _serving(look).intersection(left)


def _serving(look: Look) -> set[Identity]:
    """Return the processes that listen, and of which a thread waits for requests."""
    waiting = {row.member.identity for row in look.standing if waits_for_requests(row)}
    return {one for one in waiting if one.pid in look.servers}


def _is_idle_in_pool(row: StackState) -> bool:
    return any_means(row.stack[-1:], "idle worker") and not own_frames(row.stack)


def is_waiting_for_user(look: Look) -> bool:
    """Return whether all processes that train wait for their user, as after a training run."""
    return all(map(waits_for_user, look.mains()))


def waits_for_user(row: StackState) -> bool:
    """Return whether a thread waits for its user: at a prompt, or as a kernel between two cells."""
    if row.wait.kind == "terminal":
        return True
    # the prompt of `python -i` or of a program with a built-in Python runs no Python
    if not row.stack:
        return row.wait.kind == "read"
    runs_cell = own_frames(row.stack)
    is_kernel = any_means(row.stack, "notebook kernel")
    return is_kernel and not runs_cell and means(row.stack[-1], "idle loop")


def is_frozen(look: Look) -> bool:
    """Return whether all processes that train are frozen.

    Whoever froze them will let them go on, so the hang is no fault of the run.
    """
    return all(row.wait.kind == "frozen" for row in look.mains())


def waits_for_requests(row: StackState) -> bool:
    """Return whether a thread stands in a place in which a server has nothing to do.

    Nothing that an event loop has called is such a place.
    """
    if any_means(row.stack, "waits for requests"):
        return True
    return any_means(row.stack[-1:], "idle loop") and any_means(row.stack[-2:], "event loop")


def ends_by_itself(look: Look) -> bool:
    """Return whether all waits of the processes that train end by themselves.

    If so, it takes longer until the wait counts as a hang.

    A process that waits for its children waits as long as they do.
    """
    return all(
        one.wait.kind in ("sleep", "flush") for row in look.mains() for one in _awaited(look, row)
    )


def _awaited(look: Look, row: StackState) -> list[StackState]:
    """Return the main threads of the children that a thread waits for.

    Returns the thread itself if it waits for none.
    """
    children = [
        one for one in look.standing if one.is_main and one.member.parent == row.member.identity
    ]
    return children if row.wait.kind == "child" and children else [row]


def find_cause(look: Look, deaths: Sequence[Death]) -> Cause:
    """Return the cause of a hang; ``deaths`` are those from shortly before it until now."""
    mains = _waiting(look)
    groups = [group_of(row) for row in mains]
    group = next((paused for paused in PAUSED if paused in groups), "collective")
    if group not in groups:
        cause = _joined_writer(look) or _missing_worker(look, mains, groups, deaths)
        if cause is not None:
            return cause
        group = max(groups, key=groups.count, default="unknown")
    if len(mains) < 2:
        return Cause(
            group, sentence_of(mains[0]) if mains else "no process that trains could be read"
        )
    alike = [row for row, found in zip(mains, groups, strict=True) if found == group]
    others = [row for row, found in zip(mains, groups, strict=True) if found != group]
    text = f"{len(alike)} of {len(mains)} processes wait so: {sentence_of(alike[0])}"
    return Cause(group, "; ".join([text, *map(sentence_of, others[:3])]))


def _waiting(look: Look) -> Sequence[StackState]:
    """Return the main threads whose waits tell the cause."""
    mains = look.mains()
    # Look at the children: a parent only waits for them.
    if all(group_of(row) == "child process" for row in mains):
        children = [row for row in look.standing if row.is_main and row.member.role != roles.MAIN]
        return children or mains
    return mains


def _missing_worker(
    look: Look, mains: Sequence[StackState], groups: Sequence[str], deaths: Sequence[Death]
) -> Cause | None:
    """Return the death or the stuck worker that the others wait for; None if there is none."""
    # A process that ended left the others waiting, if they wait in a way that one process can end.
    waits_for_one = not {"queue", "lock", "blocked read", "child process"}.isdisjoint(groups)
    is_alone = any(row.wait.kind == "read" and row.wait.peers == () for row in mains)
    for death in reversed(deaths):
        is_unexplained = death.signal is None and death.code is None
        if (death.is_odd() and waits_for_one) or (is_unexplained and is_alone):
            text = f"{death.in_words()}, and {sentence_of(mains[0])}"
            dead = RankBehind(None, death.pid, "", state=death.in_words())
            return Cause("dead worker", text, (dead,))
    stuck = next(filter(is_stuck_worker, look.standing), None) if "queue" in groups else None
    if stuck is None:
        return None
    text = f"{sentence_of(mains[groups.index('queue')])}; {sentence_of(stuck)}"
    return Cause(group_of(stuck), text)


def with_stuck_workers(look: Look) -> Look:
    """Return a look in which a wait for a queue has the workers that are stuck as its peers."""
    stuck = [row.member for row in look.standing if is_stuck_worker(row)]

    def seen(row: StackState) -> StackState:
        peers = tuple(one.identity.pid for one in stuck if one.rank == row.member.rank)
        waits = peers and row in look.mains() and group_of(row) == "queue"
        return row._replace(wait=row.wait._replace(peers=peers)) if waits else row

    return replace(look, standing=tuple(map(seen, look.standing)))


def _joined_writer(look: Look) -> Cause | None:
    """Return the cause of a child that is waited for, and waits itself for its pipe to be read.

    Only the process that waits for its end could read: it joins the child before it has emptied the
    queue.
    """
    for parent, row in itertools.product(look.mains(), look.standing):
        pid, child = parent.member.identity.pid, row.member.identity.pid
        joins = parent.wait.kind == "child" and parent.wait.peers == (child,)
        if joins and row.wait.kind == "write" and row.wait.peers == (pid,):
            text = f"{sentence_of(parent)}, before it has read what that writes; {sentence_of(row)}"
            return Cause("child process", text)
    return None


def group_of(row: StackState) -> str:
    """Return the group of causes that a thread's wait belongs to."""
    if row.wait.kind in PAUSED:
        return row.wait.kind
    likely: str | None = None
    for frame in reversed(row.stack):
        if not is_library(frame.file):
            break
        may_exchange = row.member.rank is not None and row.wait.kind == "lock"
        if means(frame, "waits for ranks") or (may_exchange and means(frame, "backward")):
            return "collective"
        if sure := next((group for group in _SURE if means(frame, group)), None):
            return sure
        likely = likely or next((group for group in _LIKELY if means(frame, group)), None)
    return likely or _BY_WAIT.get(row.wait.kind, "unknown")


def is_stuck_worker(row: StackState) -> bool:
    """Return whether a thread is that of a worker that does not wait for work.

    Such a worker is what the others wait for.
    """
    stack = row.stack
    if not row.is_main or not (row.member.role == roles.WORKER or roles.is_worker([stack])):
        return False
    # An idle worker stands in its own loop's queue, with no user code below.
    if not any_means(stack[-4:], "idle worker") or not is_library(stack[-1].file):
        return True
    loop = next(
        (index for index, frame in enumerate(stack) if means(frame, "worker loop")), len(stack)
    )
    return bool(own_frames(stack[loop + 1 :]))


def sentence_of(row: StackState) -> str:
    """Return which process stands in which place, and what it waits for.

    The place is given by the user's code and the function that it called.
    """
    name = name_of_member(row.member)
    return f"{name} stands in {place_of(row)}: {row.wait.text}" if row.stack else name


def place_of(row: StackState) -> str:
    """Return the function that the user's code called, and the line; empty without a stack.

    Frames around the beginning of a forked child are those of its parent.
    """
    if not row.stack:
        return ""
    last = len(row.stack) - 1
    begin = max(
        (index for index, frame in enumerate(row.stack) if means(frame, "child begins")), default=0
    )
    own_ones = (index for index in range(begin, last + 1) if not is_library(row.stack[index].file))
    index = max(own_ones, default=last)
    own, called = row.stack[index], row.stack[min(index + 1, last)]
    return f"{called.function} ({PurePath(own.file).name}:{own.line})"
