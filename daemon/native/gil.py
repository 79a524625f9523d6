"""Which threads wait for Python's lock (GIL), and which one holds it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.interpreter.lock import lock_state
from profd.daemon.stacks.dump import DumpedThread


class GilWait(NamedTuple):
    """A wait for Python's lock in words, and the thread that holds it, if that is known."""

    text: str
    holders: tuple[int, ...]


def waits_for_gil(pid: int, threads: Sequence[DumpedThread]) -> dict[int, GilWait]:
    """Return the waits of threads for Python's lock, by the ids that they have for their process.

    Empty if nobody waits for it, or if that cannot be read.
    """
    state = lock_state(pid)
    if state is not None and state.is_held and not state.waiting:
        # who waits for it wakes up every 5 ms, and is not seen to wait in that moment
        time.sleep(0.002)
        state = lock_state(pid)
    if state is None:
        return {}
    ids = processes.thread_ids(pid)
    named = {ids.get(one.os_thread_id or 0, 0): one for one in threads if one.frames}
    own: tuple[int, ...] = ()
    if holder := named.get(state.holder or -1):
        own = (holder.os_thread_id or 0,)
        held = f"which thread {holder.thread_name or holder.os_thread_id} holds in "
        held += f"{holder.frames[0].name} ({holder.frames[0].place})"
    elif state.holder is not None:
        held = f"which thread {state.holder} holds"
    else:
        held = "which is held by a thread that is gone" if state.is_held else "which nobody holds"
    wait = GilWait(f"waits for the GIL, {held}", own)
    return {one: wait for one, here in ids.items() if here in state.waiting}
