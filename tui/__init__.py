"""The dashboard: one set of screens for live and finished runs.

    run file -> runmodel (increments) -> feed (a thread) -> SnapshotTaken -> dashboard -> widgets

The thread reads and counts; the event loop only draws frozen snapshots, and never waits for the
disk. Everything shown comes out of the run file, so a replay is a live view without new data.

On the thread's side are ``feed``, ``runmodel``, ``processes`` and ``findings``, and for the
timeline ``columns``, ``series``, ``phaserows`` and ``pace``. ``view`` says what the screens ask
for, and ``snapshot`` what they get. On the event loop's side are ``dashboard``, ``dialogs``,
``scrub`` and ``widgets``; actions that take long are in ``actions``.
"""
