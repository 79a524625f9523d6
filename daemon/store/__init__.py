"""The run file: one SQLite database a run, written by one thread, read by everyone else.

``records`` go in, ``rows`` come out, and ``schema.sql`` lies between. ``database`` opens and checks
SQLite files, ``writer`` and ``reader`` write and read runs. ``stackrollups`` and ``pointrollups``
write sums by the minute, which ``rollups`` reads, so that long runs are read quickly.
"""
