"""Tells when a run has stopped to make progress, and what everyone waits for then.

    records on their way → stillness → watch → look (stacks, waits, pipes) → cause → a record of the run

``stillness`` and ``cause`` are pure; ``look``, ``waits`` and ``pipes`` read /proc and ask py-spy; ``watch``
decides when. Nothing here stops or touches a process.
"""
