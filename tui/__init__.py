"""The dashboard: one set of screens for live and finished runs.

    run file -> runmodel (increments) -> feed (a thread) -> SnapshotTaken -> dashboard -> widgets

The thread reads and counts; the event loop only draws frozen snapshots, and never waits for the
disk. Everything shown comes out of the run file, so replay is live view with nothing new to come.

On the thread's side are ``feed``, ``runmodel``, ``processes`` and ``findings``, and of the timeline
``series``, ``phaserows`` and ``pace``; ``view`` says what is asked of it, and ``snapshot`` what it
answers. On the event loop's side are ``dashboard``, ``dialogs``, ``scrub`` and ``widgets``; what
takes long is in ``actions``.
"""

import os

# Textual holds Escape back for so many milliseconds, since the bytes of every arrow key begin with
# it, too. Its own 100 are longer than a person may wait for any key, and longer than is needed:
# terminals write the bytes of a key at once, and ssh sends them in one packet. It reads this once,
# when it is imported: so it is set here, before a module of ours imports it. What the user has set
# stays. ``app`` has its driver look often enough whether the time is up.
os.environ.setdefault("ESCDELAY", "30")
