"""The dashboard: one set of screens for live and finished runs.

    run file -> survey (increments) -> feed (a thread) -> SnapshotTaken -> screens -> widgets

The thread reads and counts; the event loop only draws frozen snapshots, and never waits for the disk. Everything shown
comes out of the run file, so replay is live view with nothing new to come.
"""
