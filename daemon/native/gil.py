"""Which threads wait for Python's lock (GIL), and which one holds it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from profd.daemon import processes
from profd.daemon.interpreter.lock import lock_state
from profd.daemon.stacks.dump import DumpedThread


def waits_for_gil(pid: int, threads: Sequence[DumpedThread]) -> dict[int, str]:
    """Return what threads wait for that wait for Python's lock, by their ids in /proc.

    Empty if nobody waits for it, or if that cannot be read.
    """
    state = lock_state(pid)
    if state is not None and state.is_held and not state.waiting:
        # who waits for it wakes up every 5 ms, and is not seen to wait in that moment
        time.sleep(0.002)
        state = lock_state(pid)
    if state is None or not state.waiting:
        return {}
    ids = processes.thread_ids(pid)
    holders = (
        one for one in threads if state.holder and ids.get(one.os_thread_id or 0) == state.holder
    )
    holder = next((one for one in holders if one.frames), None)
    if holder is not None:
        held = f"which thread {holder.thread_name or holder.os_thread_id} holds in "
        held += f"{holder.frames[0].name} ({holder.frames[0].place})"
    elif state.holder is not None:
        held = f"which thread {state.holder} holds"
    else:
        held = "which is held by a thread that is gone" if state.is_held else "which nobody holds"
    return dict.fromkeys(state.waiting, f"waits for the GIL, {held}")
