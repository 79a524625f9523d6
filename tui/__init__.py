"""The dashboard: one set of screens for live and finished runs.

    run file -> reading.survey (increments) -> reading.feed (a thread) -> SnapshotTaken -> screens -> widgets

The thread reads and counts; the event loop only draws frozen snapshots, and never waits for the disk. Everything shown
comes out of the run file, so replay is live view with nothing new to come.

The thread's side is ``reading``, with ``samples`` and ``timeline`` below it; ``view`` says what is asked of it, and
``snapshot`` what it answers. The event loop's side is ``screens`` and ``widgets``, which draw by ``drawing``; what
takes long is an errand (``errands``). ``flame`` and ``terminal`` are what two of the views need on both sides.
"""

import os

# Textual holds Escape back for so many milliseconds, since the bytes of every arrow key begin with it, too. Its own 100
# are longer than a person may wait for any key, and longer than is needed: terminals write the bytes of a key at once,
# and ssh sends them in one packet. It reads this once, when it is imported: so it is set here, before a module of ours
# imports it. What the user has set stays. ``keyboard`` has its driver look often enough whether the time is up.
os.environ.setdefault("ESCDELAY", "30")
