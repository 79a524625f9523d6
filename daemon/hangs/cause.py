"""Which group of causes a hang belongs to, and the sentence that says so. Pure: judges what a look has seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from profd.daemon.hangs.look import Look, Stack, Standing, name_of_member
from profd.daemon.tree import exitstatus, roles

# What the file of a library's frame looks like, and the group of who waits there; sure ones go before likely ones.
_SURE = (
    (re.compile(r"(torch/distributed|horovod|deepspeed/comm)/(?!fsdp|launcher|elastic|run\.py)"), "collective"),
    (re.compile(r"torch/utils/data/dataloader\.py$"), "queue"),
    (re.compile(r"/(queue|multiprocessing/(queues|pool|managers)|concurrent/futures/\w+)\.py$"), "queue"),
    (re.compile(r"/(multiprocessing/(process|popen_\w+|spawn)|subprocess)\.py$"), "child process"),
)
_LIKELY = (
    (re.compile(r"/(threading|multiprocessing/synchronize)\.py$"), "lock"),
    (re.compile(r"torch/cuda/"), "gpu"),
)
_BACKWARD = "_engine_run_backward"
_LIBRARY = re.compile(r"/(site-packages|dist-packages|lib(64)?/python\d[^/]*)/|^<frozen ")
_BY_WAIT = {
    "lock": "lock",
    "read": "blocked read",
    "terminal": "blocked read",
    "events": "blocked read",
    "write": "blocked write",
    "flush": "blocked write",
    "child": "child process",
    "sleep": "sleep",
    "gpu": "gpu",
    "stopped": "stopped",
    "running": "spin",
}
# Their waits end by themselves: it takes longer until that is called a hang.
SELF_ENDING = frozenset({"sleep", "flush"})
# What a DataLoader's or a pool's worker does that has nothing to do.
_IDLE_WORKER = re.compile(r"/multiprocessing/(queues|pool|connection)\.py$|/concurrent/futures/\w+\.py$")
_EVENT_LOOP = ("asyncio/base_events.py", "run_forever")


class Death(NamedTuple):
    """A process of the run that ended; code and signal are None where nobody could tell."""

    at_ns: int
    who: str
    code: int | None
    signal: int | None

    def is_odd(self) -> bool:
        """Say whether a signal or an error ended it."""
        return self.signal is not None or bool(self.code)

    def is_unexplained(self) -> bool:
        """Say whether nobody knows what ended it: its parent had taken notice before we could."""
        return self.signal is None and self.code is None

    def in_words(self) -> str:
        """Return who ended how."""
        return f"{self.who} {exitstatus.in_words(self.code, self.signal)}"


class Cause(NamedTuple):
    """The group of causes, and the sentence."""

    group: str
    text: str


def is_waiting_for_work(look: Look) -> bool:
    """Say whether all who train wait as servers and prompts do: in an event loop, or at a terminal."""
    return all(_is_event_loop(row.stack) or row.wait.kind == "terminal" for row in look.mains())


def ends_by_itself(look: Look) -> bool:
    """Say whether what all who train wait for will end by itself: a sleep, or a disk that writes."""
    return all(row.wait.kind in SELF_ENDING for row in look.mains())


def find_cause(look: Look, deaths: Sequence[Death]) -> Cause:
    """Return the cause of a hang; ``deaths`` are those of the time shortly before it and since."""
    mains = _training(look)
    groups = [group_of(row) for row in mains]
    for group, found in ((name, groups.count(name)) for name in ("stopped", "collective")):
        if found:
            return Cause(group, _among(mains, groups, group))
    missed = _missed(deaths, set(groups))
    if missed is not None:
        return Cause("dead worker", f"{missed.in_words()}, and {_sentence(mains[0])}")
    stuck = _stuck_worker(look) if "queue" in groups else None
    if stuck is not None:
        return Cause(group_of(stuck), f"{_sentence(mains[groups.index('queue')])}; {_sentence(stuck)}")
    group = max(groups, key=groups.count, default="unknown")
    return Cause(group, _among(mains, groups, group))


def group_of(row: Standing) -> str:
    """Return the group of causes that one thread's wait belongs to."""
    if row.wait.kind == "stopped":
        return "stopped"
    likely = None
    for frame in reversed(row.stack):
        if not _LIBRARY.search(frame.file):
            break
        for pattern, group in _SURE:
            if pattern.search(frame.file):
                return group
        if frame.function == _BACKWARD and row.member.rank is not None and row.wait.kind == "lock":
            return "collective"
        likely = likely or next((group for pattern, group in _LIKELY if pattern.search(frame.file)), None)
    return likely or _BY_WAIT.get(row.wait.kind, "unknown")


def _training(look: Look) -> list[Standing]:
    """Return the main threads of those who train: of the children, where their parent but waits for them to end."""
    mains = look.mains()
    if all(group_of(row) == "child process" for row in mains):
        children = [row for row in look.standing if row.is_main and row.member.role != roles.MAIN]
        return children or mains
    return mains


def _missed(deaths: Sequence[Death], groups: set[str]) -> Death | None:
    """Return the process whose end left the others waiting; None where they do not wait as for one."""
    for death in reversed(deaths):
        if death.is_odd() and groups & {"queue", "lock", "blocked read", "child process"}:
            return death
        if death.is_unexplained() and "queue" in groups:
            return death
    return None


def _stuck_worker(look: Look) -> Standing | None:
    """Return a worker that does not wait for work, and so is what the others wait for."""
    for row in look.standing:
        is_worker = row.member.role == roles.WORKER or roles.is_worker([row.stack])
        if row.is_main and is_worker and not _is_idle_worker(row.stack):
            return row
    return None


def _is_idle_worker(stack: Stack) -> bool:
    """Say whether a worker waits for work: in its own loop's queue, with none of the user's code below."""
    library = [frame for frame in stack[-4:] if _IDLE_WORKER.search(frame.file)]
    return bool(library) and bool(stack) and bool(_LIBRARY.search(stack[-1].file)) and not _is_in_user_code(stack)


def _is_in_user_code(stack: Stack) -> bool:
    """Say whether a worker is at work in code that is the user's, called from the loop of workers."""
    loop = next((index for index, frame in enumerate(stack) if roles.is_worker([[frame]])), None)
    return loop is not None and any(not _LIBRARY.search(frame.file) for frame in stack[loop + 1 :])


def _is_event_loop(stack: Stack) -> bool:
    return any(frame.file.endswith(_EVENT_LOOP[0]) and frame.function.endswith(_EVENT_LOOP[1]) for frame in stack)


def _among(mains: Sequence[Standing], groups: Sequence[str], group: str) -> str:
    """Return how many of those who train wait so, and where the others stand."""
    if not mains:
        return "no process that trains could be read"
    alike = [row for row, found in zip(mains, groups, strict=True) if found == group]
    others = [row for row, found in zip(mains, groups, strict=True) if found != group]
    if len(mains) == 1:
        return _sentence(mains[0])
    text = f"{len(alike)} of {len(mains)} processes wait so: {_sentence(alike[0])}"
    return "; ".join([text, *(_sentence(row) for row in others[:3])])


def _sentence(row: Standing) -> str:
    """Return who stands where, and what it waits for."""
    where = place_of(row.stack)
    return f"{name_of_member(row.member)} stands {where}: {row.wait.text}" if where else name_of_member(row.member)


def place_of(stack: Stack) -> str:
    """Return where a stack stands: at which line of the user's code, and what that called."""
    if not stack:
        return ""
    index = max((index for index, frame in enumerate(stack) if not _LIBRARY.search(frame.file)), default=len(stack) - 1)
    own, called = stack[index], stack[min(index + 1, len(stack) - 1)]
    return f"in {called.function} ({PurePath(own.file).name}:{own.line})"
