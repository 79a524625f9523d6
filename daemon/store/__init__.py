"""The run file: one SQLite database a run, written by one thread, read by everyone else.

``records`` is what goes in, ``rows`` what comes out, ``schema.sql`` what lies between. ``database`` knows how to talk
to SQLite and nothing of runs; ``writer`` and ``reader`` know runs and nothing of where they come from or go to.
``sums`` makes long runs quick to read.
"""
