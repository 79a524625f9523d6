"""The run file: one SQLite database per run, written by one thread, read by everyone else.

``records`` go in, ``rows`` come out, and ``schema.sql`` defines what lies between. ``database``
opens and checks SQLite files; ``writer`` and ``reader`` write and read runs. ``stackrollups`` and
``pointrollups`` write sums per minute, and ``rollups`` reads them, so that long runs are read
quickly.
"""
