"""Name the rank that the others of a job wait for.

It uses NCCL's counts if there are any, else the stacks. This module is pure.

In the stacks, either some ranks wait in a collective and others elsewhere, or all wait in a
collective, but not in the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from profd.daemon.collectives.desync import Behind, DesyncVerdict, Progress
from profd.daemon.frameworks.frames import any_means, means
from profd.daemon.hangs.cause import PAUSED, Cause, Death, group_of, is_stuck_worker, place_of
from profd.daemon.hangs.look import Look, LookPair, StackState, has_computed, name_of_member
from profd.daemon.stacks.source import is_library, own_frames
from profd.daemon.store.records import RankBehind


def find_desync(look: Look, deaths: Sequence[Death], verdict: DesyncVerdict) -> Cause | None:
    """Return the cause of a hang of several ranks, or None if no rank is behind the others."""
    rows = [row for row in look.mains() if group_of(row) != "child process"]
    if verdict.progress in (Progress.LOST, Progress.BEHIND, Progress.MISMATCH):
        return _by_counts(look, rows, deaths, verdict)
    if verdict.progress is Progress.ALIKE and rows:
        # Ranks run ahead of their GPU to different lines; in the end they wait in the same
        # operation.
        if odd := _odd(rows, [operation_of(row) for row in rows if operation_of(row)]):
            return _in_different(rows, odd)
        text = (
            f"all {verdict.waiting} ranks have launched the same collectives, and none "
            "of these ends"
        )
        return Cause("collective", f"{text}: the GPU or the network; {_waits(rows[0])}")
    return _by_stacks(look, rows, deaths)


def waits_for_device(row: StackState) -> bool:
    """Return whether a thread may wait for the GPU or for other ranks, and for nothing else."""
    if group_of(row) in ("collective", "gpu"):
        return True
    in_backward = any_means(row.stack, "backward")
    # Asking for a value waits in C, at the user's own line.
    return (
        row.wait.kind in ("running", "lock")
        and bool(row.stack)
        and (in_backward or not is_library(row.stack[-1].file))
    )


def operation_of(row: StackState) -> str:
    """Return the collective that a thread waits in, from its stack; empty if it waits in none."""
    if group_of(row) != "collective":
        return ""
    for frame in row.stack:
        if means(frame, "waits for ranks") and not means(frame, "around a call"):
            return frame.function.rpartition(".")[2]
    return "backward" if any_means(row.stack, "backward") else "a collective"


def _by_counts(
    look: Look, rows: Sequence[StackState], deaths: Sequence[Death], verdict: DesyncVerdict
) -> Cause:
    ours = look.job.ours if look.job else {}
    by_pid = {row.member.identity.pid: row for row in rows}
    died = {death.pid: death for death in deaths if death.pid}
    behind, said = [], []
    for one in verdict.behind:
        pid = ours.get((one.host, one.pid), one.pid if one.pid in died else None)
        behind.append(_counted(one, pid, by_pid.get(pid or 0), died.get(pid or 0)))
        said.append(_of_counts(one, behind[-1], verdict))
    stood = [row for one in behind if (row := by_pid.get(one.pid or 0))]
    waiting = [row for row in rows if row not in stood]
    more = [f"and {len(said) - 4} more ranks"] if len(said) > 4 else []
    workers = filter(None, (_worker(look, row) for row in stood[:3]))
    return _cause(stood, [*said[:4], *more, *workers, *map(_waits, waiting[:1])], behind)


def _counted(
    one: Behind, pid: int | None, row: StackState | None, death: Death | None
) -> RankBehind:
    """Return a rank that is behind by NCCL's counts, with what is known of its process here."""
    state = death.in_words() if death else row.wait.text if row else ""
    place, host = place_of(row) if row else "", "" if pid is not None else one.host
    return RankBehind(one.rank, pid or one.pid or None, one.operation, place, state, host)


def _cause(stood: Sequence[StackState], said: Sequence[str], behind: Sequence[RankBehind]) -> Cause:
    paused = next((row.wait.kind for row in stood if row.wait.kind in PAUSED), "collective")
    return Cause(paused, "; ".join(said), tuple(behind))


def _of_counts(one: Behind, named: RankBehind, verdict: DesyncVerdict) -> str:
    """Return what NCCL's counts say of a rank, and the place in which it stands."""
    name = f"rank {one.rank}" + (
        f" (pid {named.pid}{f' on {named.host}' if named.host else ''})" if named.pid else ""
    )
    others = "the others" if verdict.waiting < 2 else f"{verdict.waiting} others"
    if verdict.progress is Progress.LOST:
        text = f"{name} is {one.instead} for NCCL, and {others} wait for it"
    elif one.instead:
        text = (
            f"{name} launched {one.instead} where {others} launched {one.operation} "
            f"{one.launched + 1}"
        )
    else:
        text = f"{name} has not come to {one.operation} {one.launched + 1}, in which {others} wait"
    at = (
        f"; it stands in {named.place}: {named.state}"
        if named.place
        else f"; {named.state}"
        if named.state
        else ""
    )
    return text + at


def _by_stacks(look: Look, rows: Sequence[StackState], deaths: Sequence[Death]) -> Cause | None:
    waiting = [row for row in rows if group_of(row) == "collective"]
    others = [row for row in rows if group_of(row) != "collective"]
    # If another process has the rank of one that ended, that rank was restarted.
    alive = {None, *(row.member.rank for row in rows)}
    ended = [death for death in deaths if death.rank not in alive]
    if not waiting:
        return _outside_collectives(rows, ended)
    if ended or others:
        return _missing_in_collective(look, waiting, others, ended)
    odd = _odd(waiting, list(map(operation_of, waiting))) or _odd(
        waiting, list(map(_line, waiting))
    )
    return _in_different(waiting, odd) if odd else None


def _outside_collectives(rows: Sequence[StackState], ended: Sequence[Death]) -> Cause | None:
    """Return that the rows wait for ranks that failed; None if none did."""
    ended = [
        death for death in ended if death.code != 0
    ]  # a rank that is done is missed in a collective alone
    if not ended or not rows:
        return None
    behind = [RankBehind(one.rank, one.pid, "", state=one.in_words()) for one in ended]
    text = "; ".join([one.in_words() for one in ended[:3]])
    return Cause("dead worker", f"{text}, and {_waits(rows[0])}", tuple(behind))


def _missing_in_collective(
    look: Look, waiting: Sequence[StackState], others: Sequence[StackState], ended: Sequence[Death]
) -> Cause:
    """Return that some ranks wait in a collective for others, which stand elsewhere or ended."""
    operation = Counter(map(operation_of, waiting)).most_common(1)[0][0]
    behind = [RankBehind(one.rank, one.pid, operation, state=one.in_words()) for one in ended]
    behind += [_behind(row, operation) for row in others]
    said = [*(one.in_words() for one in ended), *map(_waits, others[:3])]
    said += filter(None, (_worker(look, row) for row in others[:3]))
    counted = f"{len(waiting)} of {len(waiting) + len(others) + len(ended)} ranks"
    return _cause(
        others, [*said, f"{counted} wait for that in {operation}: {_waits(waiting[0])}"], behind
    )


def _in_different(rows: Sequence[StackState], odd: Sequence[StackState]) -> Cause:
    usual = next((row for row in rows if row not in odd), None)
    text = "; ".join(f"{_waits(row)}, in {operation_of(row)}" for row in odd[:4])
    rest = (
        f"; the other {len(rows) - len(odd)} wait in {operation_of(usual)}: {_waits(usual)}"
        if usual
        else ""
    )
    behind = tuple(_behind(row, operation_of(row)) for row in odd)
    return Cause("collective", f"ranks wait in different collectives: {text}{rest}", behind)


def _odd(rows: Sequence[StackState], kinds: Sequence[Hashable]) -> list[StackState]:
    """Return the rows whose kind differs from the most frequent one, or all rows on a tie.

    Returns none if a row has no kind.
    """
    common = Counter(kinds).most_common()
    if len(common) < 2 or len(kinds) < len(rows):
        return []
    is_tie = common[0][1] == common[1][1]
    return [row for row, kind in zip(rows, kinds, strict=True) if is_tie or kind != common[0][0]]


def _line(row: StackState) -> Hashable:
    return next(((frame.file, frame.line) for frame in reversed(own_frames(row.stack))), None)


def _worker(look: Look, row: StackState) -> str:
    """Return the place of a worker that a rank waits for; empty if none is known."""
    if group_of(row) != "queue":
        return ""
    own = (one for one in look.standing if one.member.rank == row.member.rank)
    return next(map(_waits, filter(is_stuck_worker, own)), "")


def _behind(row: StackState, operation: str) -> RankBehind:
    return RankBehind(
        row.member.rank, row.member.identity.pid, operation, place_of(row), row.wait.text
    )


def _waits(row: StackState) -> str:
    name, pid = name_of_member(row.member), row.member.identity.pid
    return f"{name} (pid {pid}) stands in {place_of(row)}: {row.wait.text}"


def is_at_work(looks: LookPair, behind: Sequence[RankBehind]) -> bool:
    """Return whether a rank that the others wait for worked between two looks, and so may come.

    CPU time in a wait for the GPU or another rank is no work: such waits spin. A rank on another
    host counts as working, as its activity is not known here.
    """
    pids = {one.pid for one in behind}
    rows = (row for row in looks.second.mains() if row.member.identity.pid in pids)
    ranks = [row.member.rank for row in rows if group_of(row) not in ("collective", "gpu")]
    before, now = (look.cpu_s for look in looks)
    used = (now.get(rank, 0.0) - before.get(rank, 0.0) for rank in ranks)
    return any(one.host for one in behind) or any(
        has_computed(cpu_s, looks.seconds) for cpu_s in used
    )
