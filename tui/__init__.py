"""The dashboard: one set of screens for live and finished runs.

    run file -> runmodel (increments) -> feed (a thread) -> SnapshotTaken -> dashboard -> widgets

The thread reads and counts; the event loop only draws frozen snapshots, and never waits for the
disk. Everything shown comes out of the run file, so a replay is a live view without new data.

On the thread's side are ``feed``, ``runmodel``, ``processes`` and ``findings``, and for the
timeline ``series``, ``phaserows`` and ``pace``. ``view`` says what the screens ask for, and
``snapshot`` what they get. On the event loop's side are ``dashboard``, ``dialogs``, ``scrub`` and
``widgets``; actions that take long are in ``actions``.
"""

import os

# Textual delays Escape by this many milliseconds, since the bytes of every arrow key begin with it,
# too. Its default of 100 is longer than a person should wait for a key, and longer than necessary:
# terminals write the bytes of a key at once, and ssh sends them in one packet. Textual reads the
# value once, when it is imported, so it is set here, before any module of ours imports it. A value
# that the user has set stays. ``app`` makes the driver look often enough whether the time is up.
os.environ.setdefault("ESCDELAY", "30")
